#include "support/prints.h"

#include <iostream>
#include <regex>

namespace ddp::testing {

std::string printed_below(const std::string& finding, const RankReports& reports) {
  std::smatch found;
  if (std::regex_search(finding, found, std::regex("\\brank (\\d{1,2})\\b"))) {
    const std::size_t rank = std::stoul(found[1]);
    if (rank < reports.ranks.size() && !reports.ranks[rank].log.empty()) {
      return "\n" + reports.ranks[rank].printed();
    }
  }
  for (const RankReport& report : reports.ranks) {
    if (!report.log.empty()) {
      return "\n" + report.printed();
    }
  }
  return "";
}

void pass_prints_on(const std::string& body, const RankReports& reports) {
  for (const RankReport& report : reports.ranks) {
    if (!report.log.empty()) {
      std::cout << "rank " << report.rank << " in \"" << body << "\":\n"
                << report.log << (report.log.ends_with('\n') ? "" : "\n") << std::flush;
    }
  }
}

}  // namespace ddp::testing
