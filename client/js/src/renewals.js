// One timer for all renewals of a client. It does not keep the process running.

/** What tests replace: a monotonic clock in milliseconds, timers, and the randomness of a backoff. */
export const systemClock = {
    now: () => performance.now(),
    setTimeout: (f, ms) => setTimeout(f, ms),
    clearTimeout: (timer) => clearTimeout(timer),
    random: Math.random,
};

export class Renewals {
    #clock;
    #due = new Map(); // when each lease is due
    #timer = null;

    constructor(clock) {
        this.#clock = clock;
    }

    /** Calls lease.tick in delayMs. */
    schedule(lease, delayMs) {
        this.#due.set(lease, this.#clock.now() + Math.max(0, delayMs));
        this.#arm();
    }

    forget(lease) {
        this.#due.delete(lease);
        this.#arm();
    }

    #arm() {
        if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
        this.#timer = null;
        if (this.#due.size === 0) return;
        const first = Math.min(...this.#due.values());
        this.#timer = this.#clock.setTimeout(() => this.#fire(), Math.min(Math.max(0, first - this.#clock.now()), 2 ** 31 - 1));
        this.#timer?.unref?.();
    }

    #fire() {
        this.#timer = null;
        const now = this.#clock.now();
        for (const [lease, at] of [...this.#due]) {
            if (at > now) continue;
            this.#due.delete(lease);
            lease.tick();
        }
        this.#arm();
    }
}
