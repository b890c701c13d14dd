// A clock that stands still until `pass`, with the functions of browsers for timers.
export function stoppedClock() {
  let now = 0; // milliseconds
  let last = 0;
  const timers = new Map();
  const start = (run, delay, interval) => timers.set(++last, { run, at: now + delay, interval }) && last;
  const stop = (id) => timers.delete(id);

  function pass(milliseconds) {
    const end = now + milliseconds;
    for (;;) {
      const [id, next] = [...timers].reduce((a, b) => (b[1].at < a[1].at ? b : a), [0, { at: Infinity }]);
      if (next.at > end) break;
      now = next.at;
      if (next.interval) next.at += next.interval;
      else timers.delete(id);
      next.run();
    }
    now = end;
  }

  return {
    pass,
    performance: { now: () => now },
    functions: {
      setTimeout: (run, delay = 0) => start(run, delay),
      setInterval: (run, interval) => start(run, interval, interval),
      clearTimeout: stop,
      clearInterval: stop,
    },
  };
}
