// A picture of fractions of a limit: bars, for a terminal and as SVG.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

struct Bar {
  std::string name;
  double fraction = 0;  // of the limit, which may be passed
  std::string text;     // behind the bar
};

// A bar of so many columns, of which all are the limit.
std::string TextBar(double fraction, int columns);
std::string Svg(const std::string& title, const std::vector<Bar>& bars);

}  // namespace tkv::cli
