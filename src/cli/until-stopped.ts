// How a server command ends: the first SIGTERM or SIGINT asks it to stop, a second one ends the process at once.

/** Waits for a signal, then runs `stop` to its end and gives the exit code 0. */
export async function untilStopped(stop: () => Promise<void>): Promise<number> {
  await new Promise<void>((resolve) => {
    let asked = false;
    const onSignal = (): void => {
      if (asked) process.exit(1);
      asked = true;
      resolve();
    };
    process.on('SIGTERM', onSignal);
    process.on('SIGINT', onSignal);
  });
  await stop();
  return 0;
}
