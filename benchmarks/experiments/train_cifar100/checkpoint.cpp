#include "experiments/train_cifar100/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "ddp/meters/whole_file.h"
#include "experiments/train_cifar100/data.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The file consists of
// - this line,
// - a line with the checksum of everything below it and its number of bytes,
// - the lines of the identity, and an empty line,
// - the tensors.
constexpr std::string_view kTitle = "ddp-lab checkpoint 1\n";
constexpr std::size_t kChecksum = 16;  // characters
constexpr const char* kRemedy = "; delete it, or leave out --resume to begin anew";

std::string host_name() {
  char name[256] = "unknown";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string in_words(const std::string& value) { return value; }
std::string in_words(std::int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number.
std::string in_words(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string lines_of(Parameters identity) {
  const char* commit = std::getenv("DDP_LAB_COMMIT");
  identity.insert(identity.end(), {{"host", host_name()},
                                   {"torch", TORCH_VERSION},
                                   {"commit", commit && *commit ? commit : "unknown"}});
  std::string lines;
  for (const auto& [name, value] : identity) {
    lines += name + ": " + std::visit([](const auto& plain) { return in_words(plain); }, value);
    lines += '\n';
  }
  return lines;
}

std::string to_bytes(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.cpu();
  }
  const std::vector<char> bytes = torch::jit::pickle_save(tensors);
  return {bytes.begin(), bytes.end()};
}

std::vector<at::Tensor> to_tensors(std::string_view bytes) {
  return torch::jit::pickle_load({bytes.begin(), bytes.end()}).toTensorVector();
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

// Everything after the second line. Throws if it is not what was written.
std::string_view checked_content(const fs::path& file, std::string_view text) {
  TORCH_CHECK_VALUE(text.starts_with(kTitle), file.string(), " is no checkpoint of this program",
                    kRemedy);
  text.remove_prefix(kTitle.size());
  const std::string sums(take_line(text));
  char* end = nullptr;
  const std::size_t bytes =
      sums.size() > kChecksum ? std::strtoull(sums.c_str() + kChecksum, &end, 10) : 0;
  TORCH_CHECK_VALUE(bytes == text.size(), file.string(), " is truncated or corrupt: it has ",
                    with_commas(static_cast<std::int64_t>(text.size())), " bytes of ",
                    with_commas(static_cast<std::int64_t>(bytes)), kRemedy);
  TORCH_CHECK_VALUE(sums.substr(0, kChecksum) == hexadecimal(fnv1a(text)), file.string(),
                    " is corrupt: its checksum is ", hexadecimal(fnv1a(text)), ", not ",
                    sums.substr(0, kChecksum), kRemedy);
  return text;
}

// Removes the identity from `text`, line by line, so that the message can name the line that
// differs.
void check_identity(const fs::path& file, std::string_view& text, std::string_view identity) {
  while (!identity.empty()) {
    const std::string_view now = take_line(identity);
    const std::string_view then = take_line(text);
    TORCH_CHECK_VALUE(then == now, file.string(), " was made by a run with \"", then,
                      "\", and this one has \"", now, "\"", kRemedy);
  }
  TORCH_CHECK_VALUE(take_line(text).empty(), file.string(), " was made by a run of another kind",
                    kRemedy);
}

}  // namespace

CifarCheckpoint::CifarCheckpoint(const fs::path& result, const std::string& name,
                                 const Parameters& identity)
    : file_(result.string() + "." + name + ".checkpoint"), identity_(lines_of(identity)) {}

void CifarCheckpoint::save(const std::vector<at::Tensor>& tensors) const {
  const std::string content = identity_ + "\n" + to_bytes(tensors);
  write_whole_file(file_,
                   std::string(kTitle) + hexadecimal(fnv1a(content)) + " " +
                       std::to_string(content.size()) + "\n" + content,
                   "--output");
}

std::optional<std::vector<at::Tensor>> CifarCheckpoint::load() const {
  std::ifstream stream(file_, std::ios::binary);
  if (!stream) {
    TORCH_CHECK_VALUE(!fs::exists(file_), file_.string(), " cannot be read", kRemedy);
    return std::nullopt;
  }
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  std::string_view content = checked_content(file_, text);
  check_identity(file_, content, identity_);
  return to_tensors(content);
}

void CifarCheckpoint::remove() const {
  std::error_code ignored;  // a missing folder has nothing to remove
  const std::string name = file_.filename().string();
  const fs::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string other = entry.path().filename().string();
    // write_whole_file() adds a dot and six characters to the names of its temporary files.
    if (other == name || (other.starts_with(name + ".") && other.size() == name.size() + 7)) {
      fs::remove(entry.path(), ignored);
    }
  }
}

std::vector<at::Tensor> broadcast_tensors(const std::vector<at::Tensor>& tensors,
                                          const DeviceContext& device_context) {
  const bool root = device_context.group->getRank() == 0;
  std::string bytes = root ? to_bytes(tensors) : "";
  const auto on_device = at::device(device_context.device);
  const at::Tensor size =
      at::full({1}, static_cast<std::int64_t>(bytes.size()), on_device.dtype(at::kLong));
  broadcast(size, device_context.group);
  bytes.resize(size.item<std::int64_t>());
  const auto length = static_cast<std::int64_t>(bytes.size());
  const at::Tensor content = at::from_blob(bytes.data(), {length}, at::kByte)
                                 .to(device_context.device);  // the CPU: no copy
  broadcast(content, device_context.group);
  at::from_blob(bytes.data(), {length}, at::kByte).copy_(content);
  return to_tensors(bytes);
}

}  // namespace ddp
