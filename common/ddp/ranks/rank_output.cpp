#include "ddp/ranks/rank_output.h"

#include <c10/util/Type.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace ddp {

namespace {

constexpr std::size_t kHalf = 8 << 10;
constexpr std::size_t kPlacesShown = 4;

// "/any/where/assignments/01/x.cpp:42" -> "assignments/01/x.cpp:42"; empty for code that is not the
// lab's.
std::string inside_lab(const std::string& place) {
  for (const char* room : {"assignments/", "solutions/", "tests/", "common/ddp/", "benchmarks/"}) {
    const auto at = place.rfind(room);
    if (at != std::string::npos && place.find(":?") == std::string::npos) {
      return place.substr(at, place.find(' ', at) - at);
    }
  }
  return "";
}

// "ddp::f(at::Tensor, int) const" -> "ddp::f"
std::string without_parameters(const std::string& function) {
  std::size_t end = function.find('(');
  for (const std::string_view part : {"(anonymous namespace)", "()"}) {  // of a name; of operator()
    while (end != std::string::npos && function.compare(end, part.size(), part) == 0) {
      end = function.find('(', end + part.size());
    }
  }
  return function.substr(0, end);
}

// Whether the loader of this process has loaded it.
bool is_loaded(const std::string& module) {
  const auto is_it = [](dl_phdr_info* info, std::size_t, void* name) {
    return *static_cast<const std::string*>(name) == info->dlpi_name ? 1 : 0;
  };
  return dl_iterate_phdr(is_it, const_cast<std::string*>(&module)) != 0;
}

bool may_look_up(const StackFrame& frame, const ForkOptions& options) {
  return frame.module == options.stage_library || (!options.untrusted && is_loaded(frame.module));
}

// The function and place of an address, from the debug information, then those of its inlined
// callers.
std::vector<std::string> look_up(const StackFrame& frame) {
  std::vector<std::string> places;
  // A shell reads the command, and the rank's own code may have written the frame.
  const bool plain = frame.module.find('\'') == std::string::npos &&
                     frame.offset.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!plain) {
    return places;
  }
  const std::string command = "ulimit -v 4000000; ulimit -t 10; addr2line -C -f -i -e '" +
                              frame.module + "' 0x" + frame.offset + " 2>/dev/null";
  const std::unique_ptr<FILE, decltype(&pclose)> pipe(popen(command.c_str(), "r"), &pclose);
  std::array<char, 4096> line{};
  std::string function;
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string text(line.data(), std::strcspn(line.data(), "\n"));
    if (function.empty()) {
      function = std::move(text);
      continue;
    }
    if (std::string place = inside_lab(text); !place.empty()) {
      const bool wrapper = function.starts_with("std::");  // what the library makes of a lambda
      places.push_back(wrapper ? place : place.append(" in ").append(without_parameters(function)));
    }
    function.clear();
  }
  return places;
}

// Of a template of the C++ library's, whose arguments fill a screen, its beginning.
std::string folded(const std::string& function) {
  constexpr std::size_t kLongest = 120;
  return function.size() > kLongest ? function.substr(0, kLongest) + "..." : function;
}

// For the places of a stack. Debug information that a stage has forged may hold up each of hundreds.
constexpr auto kLooksUpFor = std::chrono::seconds(10);

bool from_stage(const StackFrame& frame) {
  return frame.module.find("libstage.so") != std::string::npos;
}

bool from_lab(const StackFrame& frame) {
  return frame.module.find("_code.so") != std::string::npos;
}

// "aten::view" for a frame of libtorch's dispatcher, at::_ops::view::call(...); else empty.
std::string operator_of(const StackFrame& frame) {
  constexpr std::string_view kPrefix = "_ZN2at4_ops";
  if (!frame.symbol.starts_with(kPrefix)) {
    return "";
  }
  std::string_view name(frame.symbol);
  name.remove_prefix(kPrefix.size());
  std::size_t length = 0;
  const auto [rest, error] = std::from_chars(name.begin(), name.end(), length);
  name.remove_prefix(rest - name.begin());
  return "aten::" + std::string(name.substr(0, length));
}

// A name that a stage has made up may take gigabytes when it is spelled out.
std::string spelled_out(const std::string& symbol, bool untrusted) {
  return untrusted ? symbol : c10::demangle(symbol.c_str());
}

}  // namespace

void BoundedText::append(std::string_view text) {
  const std::size_t into_head = std::min(text.size(), kHalf - head_.size());
  head_.append(text.substr(0, into_head));
  text.remove_prefix(into_head);
  tail_.append(text.substr(text.size() - std::min(text.size(), kHalf)));
  dropped_ += text.size() - std::min(text.size(), kHalf);
  if (tail_.size() > kHalf) {
    dropped_ += tail_.size() - kHalf;
    tail_.erase(0, tail_.size() - kHalf);
  }
}

std::string BoundedText::str() const {
  if (dropped_ == 0) {
    return head_ + tail_;
  }
  return head_ + "\n[... " + std::to_string(dropped_) + " bytes left out ...]\n" + tail_;
}

void FrameReader::append(std::string_view bytes) {
  bytes_.erase(0,
               std::exchange(taken_, 0));  // not with each frame: a rank may send thousands at once
  if (!broken_) {
    bytes_.append(bytes);
  }
}

std::optional<Frame> FrameReader::next() {
  constexpr std::size_t kHeader = 1 + sizeof(std::uint32_t);
  const std::string_view rest = std::string_view(bytes_).substr(taken_);
  if (rest.size() < kHeader) {
    return std::nullopt;
  }
  std::uint32_t length = 0;
  std::memcpy(&length, rest.data() + 1, sizeof(length));
  if (length > kLongestFrame || std::strchr("mftnps", rest[0]) == nullptr) {
    broken_ = true;
    taken_ = bytes_.size();
    return std::nullopt;
  }
  if (rest.size() < kHeader + length) {
    return std::nullopt;
  }
  taken_ += kHeader + length;
  return Frame{static_cast<FrameKind>(rest[0]), std::string(rest.substr(kHeader, length))};
}

void drain(FileDescriptor& fd, const std::function<void(std::string_view)>& take) {
  std::array<char, 1 << 16> buffer{};
  // Bounded, so that a rank that prints endlessly cannot keep its parent from checking the
  // deadline.
  for (int i = 0; i < 64; ++i) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count == 0) {
      fd = FileDescriptor();
    }
    if (count <= 0) {
      return;
    }
    take(std::string_view(buffer.data(), count));
  }
}

StackFrame parse_stack_frame(const std::string& text) {
  // The module's name may contain spaces; offset and symbol contain none.
  const auto symbol = text.rfind(' ');
  const auto offset = symbol == std::string::npos ? symbol : text.rfind(' ', symbol - 1);
  if (offset == std::string::npos) {
    return {};
  }
  return {text.substr(0, offset), text.substr(offset + 1, symbol - offset - 1),
          text.substr(symbol + 1)};
}

std::vector<std::string> name_places(const std::vector<StackFrame>& stack,
                                     const ForkOptions& options) {
  if (options.withhold) {
    return {};  // the stage's debug information says what a line's number is
  }
  const bool in_stage = std::any_of(stack.begin(), stack.end(), from_stage);
  std::vector<std::string> named;
  std::string called;  // by the next frame that is named
  const auto end = std::chrono::steady_clock::now() + kLooksUpFor;
  for (const StackFrame& frame : stack) {
    if (named.size() >= kPlacesShown || !(in_stage ? from_stage(frame) : from_lab(frame))) {
      called = operator_of(frame);
      continue;
    }
    const bool in_time = std::chrono::steady_clock::now() < end;
    auto places =
        in_time && may_look_up(frame, options) ? look_up(frame) : std::vector<std::string>();
    if (places.empty() && frame.symbol != "?") {
      places.push_back(folded(spelled_out(frame.symbol, options.untrusted)));
    }
    if (!places.empty() && !called.empty()) {
      places[0].append(", which called ").append(called);
    }
    called.clear();
    named.insert(named.end(), places.begin(), places.end());
  }
  named.resize(std::min(named.size(), kPlacesShown));
  return named;
}

std::vector<std::string> name_places(std::span<void* const> addresses) {
  std::vector<StackFrame> stack;
  for (void* const address : addresses) {
    std::array<char, 1024> buffer{};
    const void* call = static_cast<char*>(address) - 1;  // a return address follows its call
    stack.push_back(parse_stack_frame(std::string(describe_frame(call, buffer))));
  }
  return name_places(stack);
}

std::string explain_exit(int code, const std::string& log, bool untrusted) {
  const std::string marker = "undefined symbol: ";
  if (const auto at = log.find(marker); code == 127 && at != std::string::npos) {
    const auto begin = at + marker.size();
    const std::string symbol = log.substr(begin, log.find_first_of(" \n", begin) - begin);
    return "the stage does not define " + spelled_out(symbol, untrusted) +
           ", which its header declares";
  }
  return "something called exit(" + std::to_string(code) +
         ") before the rank's function had returned";
}

namespace {

// More than anyone reads; a failing expectation in a loop may send any number.
constexpr std::size_t kMessagesKept = 1'000;
// Several stacks; each frame may cost a look at debug information.
constexpr std::size_t kFramesKept = 200;
constexpr const char* kWithheld = "its text is withheld: this run's tests or seed are secret";

void take_frames(Child& child) {
  while (auto frame = child.frames.next()) {
    RankReport& result = child.result;
    switch (frame->kind) {
      case FrameKind::kMessage:
        if (result.messages.size() < kMessagesKept && !child.withhold) {
          result.messages.push_back(std::move(frame->text));
        }
        break;
      case FrameKind::kStack:
        if (child.stack.size() < kFramesKept) {
          child.stack.push_back(parse_stack_frame(frame->text));
        }
        break;
      case FrameKind::kFinished:
        child.returned = !child.said_finished && frame->text == child.token;
        child.said_finished = true;  // which a rank says once
        break;
      case FrameKind::kThrew:
      case FrameKind::kNotImplemented:
      case FrameKind::kPeerGone:
        result.outcome =
            frame->kind == FrameKind::kPeerGone ? RankOutcome::kStopped : RankOutcome::kThrew;
        result.not_implemented = frame->kind == FrameKind::kNotImplemented;
        result.reason = child.withhold ? kWithheld : std::move(frame->text);
        child.reported = true;
        break;
    }
  }
}

}  // namespace

void take_output(Child& child) {
  drain(child.log, [&](std::string_view text) {
    child.text.append(child.withhold ? "" : text);
    child.printed += text.size();
  });
  drain(child.report, [&](std::string_view bytes) {
    child.frames.append(bytes);
    child.printed += bytes.size();
    take_frames(child);
  });
}

void set_outcome(Child& child, int status) {
  RankReport& result = child.result;
  if (child.reported || child.stop_requested || (child.returned && status == 0)) {
    return;  // the outcome was set before
  }
  if (WIFSIGNALED(status)) {
    result.outcome = RankOutcome::kSignalled;
    const char* const name = sigabbrev_np(WTERMSIG(status));  // real-time signals have none
    result.reason = "signal " + std::to_string(WTERMSIG(status)) + " (SIG" +
                    (name != nullptr ? name : "RT") + ", " + strsignal(WTERMSIG(status)) + ")";
    if (WTERMSIG(status) == SIGKILL) {
      result.reason += "; the kernel does so when memory runs out";
    }
    return;
  }
  result.outcome = RankOutcome::kExited;
  result.reason = child.withhold
                      ? "something called exit(): its code is withheld"
                      : explain_exit(WEXITSTATUS(status), child.text.str(), child.untrusted);
}

}  // namespace ddp
