// The quadrotor of rl_tools with its own defaults (a Crazyflie at 100 Hz, 500 steps), as its Python interface wants it.
#include <rl_tools/rl/environments/l2f/operations_cpu.h>
#include <rl_tools/rl/environments/l2f/parameters/default.h>

namespace RL_TOOLS_MODULE_NAME {
    namespace l2f = rl_tools::rl::environments::l2f;

    template <typename T, typename TI>
    struct Hover {
        using STATIC_PARAMETERS = typename l2f::parameters::DEFAULT_PARAMETERS_FACTORY<T, TI>::STATIC_PARAMETERS;
        using SPEC = l2f::Specification<T, TI, STATIC_PARAMETERS>;
        using ENVIRONMENT = rl_tools::rl::environments::Multirotor<SPEC>;
    };

    template <typename T, typename TI>
    using ENVIRONMENT_FACTORY = typename Hover<T, TI>::ENVIRONMENT;
}
