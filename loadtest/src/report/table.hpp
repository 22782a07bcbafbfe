// Text in columns: the first one to the left, figures to the right.
#pragma once

#include <string>
#include <vector>

namespace hotcount::loadtest {

class Table {
  public:
    explicit Table(std::vector<std::string> header);

    /// As many cells as the header has.
    void add(std::vector<std::string> row);
    /// Lines that end with a newline each; no trailing spaces.
    std::string str() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

/// 1234567 as "1,234,567", rounded to a whole number.
std::string grouped(double value);
/// Three significant digits, never as an exponent: 0.0123, 1.23, 123, 12,300.
std::string three_digits(double value);

}  // namespace hotcount::loadtest
