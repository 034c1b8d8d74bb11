#include "claims.h"

#include "bodies.h"
#include "support/calls.h"
#include "support/grading.h"
#include "support/training_claims.h"
#include "support/training_evidence.h"

// What must be true of all that the ranks did, in every body.

namespace ddp::testing {

namespace {

CheckOfCall sums_of(bool strided) {
  return [=](const CallOfGroup& call) {
    return call.strided() == strided ? wrong_sum(call) : std::string();
  };
}

constexpr const char* kTrains = "training_by_the_ring_ends_at_the_oracles_parameters";

// Data that only collectives of the group have moved are not the ring's, however right.
std::string taken_from_the_group(const Evidence& evidence) {
  const auto messages = [](const Seen& launch, int) {
    return c10d::isP2POp(launch.type) ? "some" : "";
  };
  if (!first_event(evidence, EventKind::kLaunch, messages).empty()) {
    return "";
  }
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    // Trainings begin with a broadcast; without elements it is a barrier.
    return launch.type == c10d::OpType::BROADCAST || launch.elements == 0
               ? ""
               : "no rank sends a message; rank " + std::to_string(rank) +
                     " takes a collective of the group, " + describe_operation(launch);
  });
}

// What another test reports, and makes a claim meaningless.
const Predicate kWrongSums = all_of({taken_from_the_group, in_each_call(wrong_sum)});
const Predicate kSendsNothing = all_of({taken_from_the_group, in_each_call(sends_nothing)});

// A call after errors is as right as the one before them, if there was one.
std::string wrong_after_an_error(const Evidence& evidence) {
  const auto& calls = calls_in(evidence);
  const bool wrong_anyway = calls.size() > 1 && !wrong_sum(calls.front()).empty();
  const std::string text = calls.empty() || wrong_anyway ? "" : wrong_sum(calls.back());
  return text.empty() ? "" : "after an error, in a call that is right: " + text;
}

// In calls of which only operations are told, too.
std::string messages_only(const Evidence& evidence) {
  return first_event(evidence, EventKind::kLaunch, [](const Seen& launch, int rank) {
    return c10d::isP2POp(launch.type)
               ? ""
               : "rank " + std::to_string(rank) + ", call " +
                     std::to_string(launch.place.step + 1) + ": " + describe_operation(launch) +
                     " is a collective; a ring is made of send and recv";
  });
}

const GradedTest kPrint{
    {.name = "ranks_print_in_order",
     .points = 1,
     .hint = "The rank before yours sends you a message when its line is written and flushed; wait "
             "for it, write, flush, and only then tell the next rank."},
    [] {
      judge(printing_bodies(), all_of({wrong_printing, surroundings_are_left_alone}));
    }};

const GradedTest kReduceScatter{
    {.name = "reduce_scatter_completes_chunk_r_on_rank_r",
     .points = 2,
     .hint = "Chunk r must reach rank r in the last of N-1 steps, after every other rank has added "
             "to it: so which chunk does rank r send first?"},
    [] {
      judge(bodies_of(Function::kReduceScatter), in_each_call(wrong_sum), taken_from_the_group);
    }};

const GradedTest kAllGather{
    {.name = "all_gather_hands_chunk_r_of_rank_r_to_all",
     .points = 2,
     .hint = "Rank r begins with its own chunk r, and passes on what it received in the step "
             "before. Chunks are copied into their place, whatever was there."},
    [] {
      judge(bodies_of(Function::kAllGather), in_each_call(wrong_gather), taken_from_the_group);
    }};

const GradedTest kAllReduce{
    {.name = "all_reduce_gives_every_rank_the_sum_or_average",
     .points = 3,
     .hint =
         "Fix reduce_scatter and all_gather first. Does it hang? Then all ranks wait for a send "
         "whose recv no rank has posted. Chunks come from balanced_split(), empty ones too."},
    [] {
      judge(joined({bodies_of(Function::kAllReduce), {many_calls()}}),
            in_each_call(sums_of(/*strided=*/false)), taken_from_the_group);
    }};

const GradedTest kSameBits{
    {.name = "all_ranks_end_with_the_same_bits",
     .points = 1,
     .hint = "Numbers that are rounded differently on two ranks drift apart in training. Which "
             "ranks divide, and do all divide in the same way?"},
    [] { judge(all_bodies(), in_each_call(differing_bits), kWrongSums); }};

const GradedTest kStorage{
    {.name = "the_result_is_in_the_callers_storage",
     .points = 1,
     .hint = "Write into the memory that the tensor has: flat views, narrow(), in-place operators. "
             "A parameter that requires a gradient takes these only where autograd is off."},
    [] {
      judge(all_bodies(), all_of({in_each_call(changed_tensor), surroundings_are_left_alone}),
            kSendsNothing);
    }};

const GradedTest kLayouts{
    {.name = "tensors_need_not_be_contiguous",
     .points = 1,
     .hint = "tensor.contiguous() is the tensor itself or a copy. What must be done with a copy in "
             "the end?"},
    [] {
      judge(bodies_of(Function::kAllReduce), in_each_call(sums_of(/*strided=*/true)),
            taken_from_the_group);
    }};

const GradedTest kRounding{
    {.name = "rounding_stays_within_the_rings_bound",
     .points = 1,
     .hint = "N-1 additions and one division, in the tensor's dtype or a better one: convert "
             "nothing to fewer digits on the way, and do not divide in every step."},
    [] { judge(all_bodies(), in_each_call(too_much_rounding), kWrongSums); }};

const GradedTest kMessages{
    {.name = "each_step_sends_one_chunk_to_the_right",
     .points = 2,
     .hint = "2(N-1) sends to rank (r+1) mod N, 2(N-1) recvs from rank (r-1) mod N, and nothing "
             "else. A message is exactly its chunk of balanced_split()."},
    [] {
      judge(all_bodies(), in_each_call(wrong_messages));
      judge({many_calls()}, messages_only);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_chunk_in_flight",
     .points = 1,
     .hint = "Between the launch of a send or recv and the end of wait() its memory belongs to the "
             "network: no reading of what is being received, no writing to either."},
    [] {
      judge(all_bodies(), in_each_call(touched_in_flight), kSendsNothing);
      judge(training_bodies_of_ring(kTrains), buffers_in_flight_are_left_alone);
    }};

const GradedTest kMemory{
    {.name = "memory_beside_the_tensor_is_one_chunk",
     .points = 1,
     .hint = "Receive what you add into one buffer of a chunk's size, and what you keep into its "
             "place. Views of the tensor (narrow) need no memory, copies do."},
    [] {
      judge(all_bodies(), uses_much_memory, kSendsNothing);
      judge({many_calls()}, [](const Evidence& evidence) {
        return growth_in_steps(evidence, kCallsBetweenCounts);
      });
    }};

const GradedTest kTime{
    {.name = "time_is_the_rings",
     .points = 2,
     .hint = "2(N-1) steps of alpha + S/N beta. In each of them a rank sends and receives at the "
             "same time: launch the recv and the send before you wait for either."},
    [] { judge(all_bodies(), wrong_time, kSendsNothing); }};

const GradedTest kTraining{
    {.name = kTrains,
     .points = 1,
     .hint = "Gradients of all shapes are averaged in place, each in its own tensor or as "
             "consecutive views of one buffer: do you respect a view's offset?"},
    [] { judge(training_bodies_of_ring(kTrains), ring_trains(), taken_from_the_group); }};

const GradedTest kErrors{
    {.name = "bad_arguments_are_refused_before_any_message",
     .points = 1,
     .hint =
         "TORCH_CHECK() what the header lists, at the very beginning of each function, also "
         "for one rank and for no elements: a rank that has sent already leaves others waiting."},
    [] {
      judge(misuse_bodies(), all_of({misuse_is_refused, wrong_after_an_error}));
    }};

}  // namespace

}  // namespace ddp::testing
