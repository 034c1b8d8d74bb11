#include "bodies.h"

#include "cases.h"
#include "support/body.h"
#include "trainer.h"

namespace ddp::testing {

namespace {

std::vector<Body> bodies_of_cases(const std::function<bool(const Case&)>& which) {
  std::vector<Body> bodies;
  for (const Case& one : cases()) {
    if (which(one)) {
      const World world = {.ranks = one.ranks, .subgroups = one.subgroups, .hold = false};
      Rare rare = rare_of(world);
      rare.insert(one.rare.begin(), one.rare.end());
      bodies.push_back({one.name, world, [&one](Client& client) { Trainer(client, one).run(); },
                        one.charged_to, rare});
    }
  }
  return bodies;
}

bool is_plain(const Case& one) { return !accumulates(one) && !clips(one); }

}  // namespace

const std::vector<Body>& training() {
  static const std::vector<Body> bodies = bodies_of_cases(is_plain);
  return bodies;
}

const std::vector<Body>& determined() {
  static const std::vector<Body> bodies = bodies_of_cases(is_determined);
  return bodies;
}

const std::vector<Body>& without_accumulation() {
  static const std::vector<Body> bodies =
      bodies_of_cases([](const Case& one) { return is_determined(one) && !accumulates(one); });
  return bodies;
}

const std::vector<Body>& accumulating() {
  static const std::vector<Body> bodies = bodies_of_cases(accumulates);
  return bodies;
}

const std::vector<Body>& clipping() {
  static const std::vector<Body> bodies = bodies_of_cases(clips);
  return bodies;
}

const std::vector<Body>& timed() {
  static const std::vector<Body> bodies = bodies_of_cases([](const Case& one) {
    return is_plain(one) && is_determined(one) && !gathers_in_vain(one) &&
           one.ranks > 1;  // one rank need not launch
  });
  return bodies;
}

}  // namespace ddp::testing
