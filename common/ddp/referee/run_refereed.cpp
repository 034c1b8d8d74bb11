#include "ddp/ranks/fork_ranks.h"
#include "ddp/referee/client.h"
#include "ddp/referee/evidence.h"
#include "ddp/referee/referee.h"

namespace ddp {

Evidence run_refereed(const World& world, ForkOptions options, const RefereedBody& body) {
  options.world_size = world.ranks;
  const Mailroom mailroom(world.ranks);
  Referee referee(world, mailroom, options.deadline);
  RankReports reports = fork_ranks(
      options,
      [&](RankContext& context) {
        // Not destroyed: handles and threads of the code under test may outlive the body.
        static std::shared_ptr<Client> client;
        client = std::make_shared<Client>(world, context.rank, mailroom.of(context.rank));
        body(*client, context);
        Place end = client->place();
        end.phase = Phase::kEnd;
        client->go_to(end);
      },
      &referee);
  Evidence evidence = referee.take_evidence();
  evidence.reports = std::move(reports);
  return evidence;
}

}  // namespace ddp
