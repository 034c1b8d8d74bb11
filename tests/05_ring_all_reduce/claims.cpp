#include "claims.h"

#include "grader/calls.h"
#include "grader/grading.h"
#include "grader/training_claims.h"
#include "grader/training_evidence.h"
#include "scenarios.h"

// What must be true of all that the ranks did, in every scenario.

namespace ddp::testing {

namespace {

CheckOfCall sums_of(bool strided) {
  return [=](const CallOfGroup& call) {
    return call.strided() == strided ? wrong_sum(call) : std::string();
  };
}

constexpr const char* kTrains = "training_by_the_ring_ends_at_the_oracles_parameters";

// Data that only collectives of the group have moved are not the ring's, however right.
Finding taken_from_the_group(const Evidence& evidence) {
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

Predicate by_messages(const Predicate& violation) {
  return all_of({taken_from_the_group, violation});
}

// What another test reports, and makes a claim meaningless.
const Predicate kWrongSums = by_messages(in_each_call(wrong_sum));
const Predicate kSendsNothing = by_messages(in_each_call(sends_nothing));

// A call after errors is as right as the one before them, if there was one.
Finding wrong_after_an_error(const Evidence& evidence) {
  const auto& calls = calls_in(evidence);
  const bool wrong_anyway = calls.size() > 1 && !wrong_sum(calls.front()).empty();
  Finding found = calls.empty() || wrong_anyway ? Finding() : wrong_sum(calls.back());
  return found.empty()
             ? found
             : std::string("after an error, in a call that is right: ") + std::move(found);
}

// In calls of which only operations are told, too.
Finding messages_only(const Evidence& evidence) {
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
     .title = "Ranks print in order",
     .points = 1,
     .hint = "The rank before yours sends you a message when its line is written and flushed; wait "
             "for it, write, flush, and only then tell the next rank.",
     .more = "Which rank may write first without asking, and which has nobody to tell? Ranks 0, 1 "
             "and 2: list who sends to whom, and what each waits for. The order of flushing "
             "matters, not that of calling. A message may contain zeros: do you ever treat it as "
             "a C string?"},
    [] {
      judge(printing_scenarios(), all_of({wrong_printing, surroundings_are_left_alone}));
    }};

const GradedTest kReduceScatter{
    {.name = "reduce_scatter_completes_chunk_r_on_rank_r",
     .title = "Reduce-scatter completes chunk r on rank r",
     .points = 2,
     .hint = "Chunk r must reach rank r in the last of N-1 steps, after every other rank has added "
             "to it: so which chunk does rank r send first?",
     .more = "Do N = 3 on paper with the table of the handout: start at the end, chunk r complete "
             "on rank r, and go back step by step. From whom did it come, and who added to it? "
             "Compare the value that came out with sums of the ranks' values: whose contribution "
             "is missing, and in which step should it have been added?"},
    [] { judge(scenarios_of(Function::kReduceScatter), by_messages(in_each_call(wrong_sum))); }};

const GradedTest kAllGather{
    {.name = "all_gather_hands_chunk_r_of_rank_r_to_all",
     .title = "All-gather hands rank r's chunk r to all",
     .points = 2,
     .hint = "Rank r begins with its own chunk r, and passes on what it received in the step "
             "before. Chunks are copied into their place, whatever was there.",
     .more = "After step 1 rank r has the chunk of which rank? After step s? Write the index as a "
             "function of r and s, then look at what your code has for r = 0. A chunk that "
             "arrives replaces what was there: is anything added?"},
    [] { judge(scenarios_of(Function::kAllGather), by_messages(in_each_call(wrong_gather))); }};

const GradedTest kAllReduce{
    {.name = "all_reduce_gives_every_rank_the_sum_or_average",
     .title = "All-reduce gives every rank the sum or average",
     .points = 3,
     .hint =
         "Fix reduce_scatter and all_gather first. Does it hang? Then all ranks wait for a send "
         "whose recv no rank has posted. Chunks come from balanced_split(), empty ones too.",
     .more = "Try 2 ranks, then 3, then sizes that N does not divide, then fewer elements than "
             "ranks. Hangs: the report has each rank's place; is a blocking send before a recv? "
             "Wrong for integers only: what do you divide, or convert? Wrong in a second group: "
             "which rank do you use, the process's or the group's?"},
    [] {
      judge(joined({scenarios_of(Function::kAllReduce), {many_calls()}}),
            by_messages(in_each_call(sums_of(/*strided=*/false))));
    }};

const GradedTest kSameBits{
    {.name = "all_ranks_end_with_the_same_bits",
     .title = "All ranks end with the same bits",
     .points = 1,
     .hint = "Numbers that are rounded differently on two ranks drift apart in training. Which "
             "ranks divide, and do all divide in the same way?",
     .more = "Each element should be computed by one chain of ranks and then only copied. Which "
             "arithmetic happens on more than one rank? If the average is taken after the "
             "all-gather, does every rank do the same operation on the same bits?"},
    [] { judge(all_scenarios(), in_each_call(differing_bits), kWrongSums); }};

const GradedTest kStorage{
    {.name = "the_result_is_in_the_callers_storage",
     .title = "The result is in the caller's tensor",
     .points = 1,
     .hint = "Write into the memory that the tensor has: flat views, narrow(), in-place operators. "
             "A parameter that requires a gradient takes these only where autograd is off.",
     .more = "Is the tensor that you write the caller's, or one that contiguous(), to() or "
             "reshape() has made? The failure says whether memory, shape, strides or a "
             "neighbour's elements changed. What does autograd say to a leaf that is written in "
             "place, and what shares its storage without being one?"},
    [] {
      judge(all_scenarios(), all_of({in_each_call(changed_tensor), surroundings_are_left_alone}),
            kSendsNothing);
    }};

// Of a function that is right otherwise, as its own test says.
void judge_layouts(Function function, const CheckOfCall& check) {
  const std::vector<Scenario> scenarios = scenarios_of(function);
  const Predicate wrong = in_each_call(check);
  judge(charged_to(scenarios, kLayoutsTest), only_where(scenarios.front(), wrong, wrong));
}

const GradedTest kLayouts{
    {.name = "tensors_need_not_be_contiguous",
     .title = "Tensors need not be contiguous",
     .points = 1,
     .hint = "tensor.contiguous() is the tensor itself or a copy. What must be done with a copy in "
             "the end?",
     .more = "Row-major order is that of the elements, not of the memory. Take a 2 x 3 tensor, "
             "transposed: which element is the first of chunk 1? Then follow your copy to the "
             "last line of the function, on every path, errors excepted."},
    [] {
      judge(scenarios_of(Function::kAllReduce),
            by_messages(in_each_call(sums_of(/*strided=*/true))));
      judge_layouts(Function::kReduceScatter, wrong_sum);
      judge_layouts(Function::kAllGather, wrong_gather);
    }};

const GradedTest kRounding{
    {.name = "rounding_stays_within_the_rings_bound",
     .title = "Rounding stays within the ring's bound",
     .points = 1,
     .hint = "N-1 additions and one division, in the tensor's dtype or a better one: convert "
             "nothing to fewer digits on the way, and do not divide in every step.",
     .more = "Count the roundings of one element: N-1 additions, and one division. Are there "
             "more? Where is an average divided, and how often? Half precision is added in half "
             "or better, never by way of fewer digits."},
    [] { judge(all_scenarios(), in_each_call(too_much_rounding), kWrongSums); }};

const GradedTest kMessages{
    {.name = "each_step_sends_one_chunk_to_the_right",
     .title = "Each step sends one chunk to the right",
     .points = 2,
     .hint = "2(N-1) sends to rank (r+1) mod N, 2(N-1) recvs from rank (r-1) mod N, and nothing "
             "else. A message is exactly its chunk of balanced_split().",
     .more = "The failure lists who sent how much to whom. Other neighbours: who is (r - 1) mod N "
             "for r = 0 in C++? Other sizes: are the first chunks one element longer in your "
             "code, too? More messages: is something announced before it is sent? With one rank "
             "there is nothing to send."},
    [] {
      judge(all_scenarios(), in_each_call(wrong_messages));
      judge({many_calls()}, messages_only);
    }};

const GradedTest kInFlight{
    {.name = "nothing_touches_a_chunk_in_flight",
     .title = "Nothing touches a chunk in flight",
     .points = 1,
     .hint = "Between the launch of a send or recv and the end of wait() its memory belongs to the "
             "network: no reading of what is being received, no writing to either.",
     .more = "For each step write down three chunks: the one that leaves, the one that arrives, "
             "the one that you add to. Are they three different pieces of memory? When does the "
             "buffer that arrives become free again? Each handle is waited for once, those of "
             "sends too."},
    [] {
      judge(all_scenarios(), in_each_call(touched_in_flight), kSendsNothing);
      judge(training_scenarios_of_ring(kTrains), buffers_in_flight_are_left_alone);
    }};

const GradedTest kMemory{
    {.name = "memory_beside_the_tensor_is_one_chunk",
     .title = "Memory beside the tensor is one chunk",
     .points = 1,
     .hint = "Receive what you add into one buffer of a chunk's size, and what you keep into its "
             "place. Views of the tensor (narrow) need no memory, copies do.",
     .more = "Which of your lines allocates: contiguous(), clone(), operator+, to(), at::cat, a "
             "vector of results? In which loop does it stand? How large is the largest chunk, and "
             "is the buffer made once a call or once a step?"},
    [] {
      judge(all_scenarios(), uses_much_memory, kSendsNothing);
      judge({many_calls()}, [](const Evidence& evidence) {
        return growth_in_steps(evidence, kCallsBetweenCounts);
      });
    }};

const GradedTest kTime{
    {.name = "time_is_the_rings",
     .title = "Time is the ring's",
     .points = 2,
     .hint = "2(N-1) steps of alpha + S/N beta. In each of them a rank sends and receives at the "
             "same time: launch the recv and the send before you wait for either.",
     .more = "Twice the time: sending and receiving take turns. N - 1 times the transfer: whole "
             "tensors travel instead of chunks. A little more: an additional message, or one rank "
             "that waits for its send before it posts its recv. On which rank does the chain of "
             "messages break first?"},
    [] { judge(all_scenarios(), wrong_time, kSendsNothing); }};

const GradedTest kTraining{
    {.name = kTrains,
     .title = "Training by the ring ends where one process ends",
     .points = 1,
     .hint = "Gradients of all shapes are averaged in place, each in its own tensor or as "
             "consecutive views of one buffer: do you respect a view's offset?",
     .more = "If all_reduce_gives_every_rank_the_sum_or_average passes, look at what is special "
             "about gradients: small ones with fewer elements than ranks, parameters that require "
             "a gradient, many calls in a row. What would be left over from one call in the next?"},
    [] { judge(training_scenarios_of_ring(kTrains), by_messages(ring_trains())); }};

const GradedTest kErrors{
    {.name = "bad_arguments_are_refused_before_any_message",
     .title = "Bad arguments are errors before any message",
     .points = 1,
     .hint =
         "TORCH_CHECK() what the header lists, at the very beginning of each function, also "
         "for one rank and for no elements: a rank that has sent already leaves others waiting.",
     .more = "Tick off the header's sentence for each of the functions, the all-gather without an "
             "op included. Are the checks before the early return for one rank, and before the "
             "one for no elements? Which ranks would wait if only this one throws?"},
    [] {
      judge(misuse_scenarios(), all_of({misuse_is_refused, wrong_after_an_error}));
    }};

}  // namespace

}  // namespace ddp::testing
