// Shows the steps of a start: on a terminal in one line that each step overwrites, otherwise one line per
// step.
import type { CommandContext } from '../command-line/command.ts';

export interface ProgressLine {
  show(step: string): void;
  /** Erases the line, so that other output begins on an empty line. */
  clear(): void;
}

const eraseLine = '\r\u001B[K';

export function createProgressLine({
  env,
  print,
  output,
}: Pick<CommandContext, 'env' | 'print' | 'output'>): ProgressLine {
  // A dumb terminal does not move its cursor.
  const isRewritten = output.isTerminal && env['TERM'] !== 'dumb';
  let isShown = false;
  const write = (text: string): void => void output.write(Buffer.from(text));
  return {
    show(step) {
      if (!isRewritten) return print(`  ${step} …`);
      write(`${eraseLine}  ${step} …`);
      isShown = true;
    },
    clear() {
      if (isShown) write(eraseLine);
      isShown = false;
    },
  };
}
