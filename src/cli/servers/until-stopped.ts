// How a server command ends: the first SIGTERM or SIGINT asks it to stop, a second one ends the process at once.

/**
 * Says that it runs, waits for a signal, then runs `stop` to its end and gives the exit code 0. It listens for the signal
 * before `announce` says anything, since whoever reads that may answer with one at once.
 */
export async function untilStopped(announce: () => void, stop: () => Promise<void>): Promise<number> {
  await new Promise<void>((resolve) => {
    let asked = false;
    const onSignal = (): void => {
      if (asked) process.exit(1);
      asked = true;
      resolve();
    };
    process.on('SIGTERM', onSignal);
    process.on('SIGINT', onSignal);
    announce();
  });
  await stop();
  return 0;
}
