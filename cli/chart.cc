#include "chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace tkv::cli {
namespace {

// Sizes of the SVG, in pixels.
constexpr int kWidth = 1000, kTop = 44, kRow = 30, kBarHeight = 18;
constexpr int kBarLeft = 230, kLimit = 300;  // width of the names, length of the limit
constexpr double kFractionMax = 1.15;        // longer bars are cut

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Text(int x, int y, const char* anchor, const std::string& text) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" text-anchor=\"" +
         anchor + "\">" + Escaped(text) + "</text>\n";
}

std::string Rectangle(int x, int y, int width, int height, const char* color) {
  return "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" width=\"" +
         std::to_string(width) + "\" height=\"" + std::to_string(height) + "\" fill=\"" + color +
         "\"/>\n";
}

}  // namespace

std::string TextBar(double fraction, int columns) {
  constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * columns * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths.at(static_cast<size_t>(eighths % 8));
  for (int i = (eighths + 7) / 8; i < columns; ++i) bar += "·";
  return bar;
}

std::string Svg(const std::string& title, const std::vector<Bar>& bars) {
  const int bottom = kTop + kRow * static_cast<int>(bars.size());
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kWidth) +
                    "\" height=\"" + std::to_string(bottom + 12) +
                    "\" font-family=\"sans-serif\" font-size=\"13\">\n" +
                    Rectangle(0, 0, kWidth, bottom + 12, "white") + Text(12, 22, "start", title);
  int y = kTop;
  for (const Bar& bar : bars) {
    const double fraction = std::clamp(bar.fraction, 0.0, kFractionMax);
    svg += Text(kBarLeft - 10, y + kBarHeight - 4, "end", bar.name);
    svg += Rectangle(kBarLeft, y, kLimit, kBarHeight, "#e4e4e4");
    svg += Rectangle(kBarLeft, y, static_cast<int>(std::lround(fraction * kLimit)), kBarHeight,
                     "#3b76af");
    svg += Text(kBarLeft + static_cast<int>(kLimit * kFractionMax) + 8, y + kBarHeight - 4, "start",
                bar.text);
    y += kRow;
  }
  svg += Rectangle(kBarLeft + kLimit, kTop - 6, 1, bottom - kTop, "#c44e52");
  return svg + "</svg>\n";
}

}  // namespace tkv::cli
