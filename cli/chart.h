// Draws fractions of a limit as bars, for a terminal and as SVG.

#pragma once

#include <string>
#include <vector>

namespace tkv::cli {

struct Bar {
  std::string name;
  double fraction = 0;  // of the limit; may be above 1
  std::string text;     // printed behind the bar
};

// Returns a bar of `columns` columns; a fraction of 1 or more fills all of them.
std::string TextBar(double fraction, int columns);
std::string Svg(const std::string& title, const std::vector<Bar>& bars);

}  // namespace tkv::cli
