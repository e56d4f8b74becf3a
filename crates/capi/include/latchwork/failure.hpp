/* How the C++ headers fail: by an exception, or, where the program is compiled without exceptions, by std::abort. */
#ifndef LATCHWORK_FAILURE_HPP
#define LATCHWORK_FAILURE_HPP

#include <cstdlib>
#include <new>
#include <system_error>

namespace lw {

namespace detail {

[[noreturn]] inline void fail(std::errc error) {
#ifdef __cpp_exceptions
    throw std::system_error(std::make_error_code(error));
#else
    (void)error;
    std::abort();
#endif
}

[[noreturn]] inline void out_of_memory() {
#ifdef __cpp_exceptions
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

} // namespace detail

} // namespace lw

#endif
