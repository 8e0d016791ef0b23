// Stops a server command: the first SIGTERM or SIGINT stops the server, a second one exits at once.

/**
 * Announces the server, waits for a signal, then runs `stop` and returns the exit code 0. The
 * handlers are installed before `announce`, because a script may answer the announcement with a
 * signal at once.
 */
export async function untilStopped(announce: () => void, stop: () => Promise<void>): Promise<number> {
  await new Promise<void>((resolve) => {
    let isStopping = false;
    const onSignal = (): void => {
      if (isStopping) process.exit(1);
      isStopping = true;
      resolve();
    };
    process.on('SIGTERM', onSignal);
    process.on('SIGINT', onSignal);
    announce();
  });
  await stop();
  return 0;
}
