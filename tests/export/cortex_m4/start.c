/* The first instructions on a bare Cortex-M4: switch on the unit for float, then newlib's own start. */
#include <stdint.h>

extern void _start(void);
extern uint32_t stack_top;

void reset(void);

void reset(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* CPACR: full access to CP10 and CP11 */
    __asm volatile("dsb\n isb");
    _start();
}

static void fault(void)
{
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void)) & stack_top, reset, fault, fault, fault, fault, fault,
};
