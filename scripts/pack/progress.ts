// Prints the progress of a build to standard error: one line per step, with the duration of the preceding
// step.

/** Returns a function that announces the next step. */
export function createProgress(
  program: string,
  write: (line: string) => void = (line) => void process.stderr.write(line),
): (step: string) => void {
  let previous: { name: string; startedMs: number } | undefined;
  return (name) => {
    const nowMs = performance.now();
    const after =
      previous === undefined ? '' : ` (${previous.name}: ${Math.round(nowMs - previous.startedMs)} ms)`;
    write(`${program}: ${name} …${after}\n`);
    previous = { name, startedMs: nowMs };
  };
}
