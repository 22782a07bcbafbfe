// A strategy that acknowledges everything and keeps nothing: what a run of it measures is the generator.
#pragma once

#include <memory>

#include "target.hpp"

namespace hotcount::loadtest {

std::unique_ptr<Target> make_idle_target();

}  // namespace hotcount::loadtest
