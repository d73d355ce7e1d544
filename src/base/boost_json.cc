// The implementation of Boost.JSON, compiled here once for all modules.
#include <boost/json/src.hpp>
