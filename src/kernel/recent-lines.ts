// The last lines of a log in memory, for a command that looks up one request in a running server.

export interface RecentLines {
  add(line: string): void;
  /**
   * The lines from the given position on, and the position after the last one. A position before the first
   * line, such as 0, reads all.
   */
  read(after: number): { lines: string[]; next: number };
}

// The line of a request has 400 bytes on average, so only long errors reach the limit of
// characters. V8 stores a line with one byte a character, or with two if it has characters beyond Latin-1.
const defaultMaxLines = 5_000;
const defaultMaxCharacters = 4 * 2 ** 20;

export interface RecentLinesOptions {
  /** The oldest lines are dropped beyond either limit. */
  maxLines?: number;
  maxCharacters?: number;
  /**
   * The position of the first line; 0 when absent. Where readers go on after a restart, it must be higher
   * than all positions before the restart: the reader then gets all lines since.
   */
  firstPosition?: number;
}

export function createRecentLines({
  maxLines = defaultMaxLines,
  maxCharacters = defaultMaxCharacters,
  firstPosition = 0,
}: RecentLinesOptions = {}): RecentLines {
  const lines: string[] = [];
  // Dropped lines stay in the array as empty strings until there are `maxLines` of them: removing each
  // at once would move all other lines.
  let firstIndex = 0;
  /** The position of the first entry of `lines`. */
  let basePosition = firstPosition;
  let characters = 0;

  function drop(): void {
    characters -= lines[firstIndex]?.length ?? 0;
    lines[firstIndex] = '';
    firstIndex += 1;
    if (firstIndex < maxLines) return;
    lines.splice(0, firstIndex);
    basePosition += firstIndex;
    firstIndex = 0;
  }

  return {
    add(line) {
      lines.push(line);
      characters += line.length;
      while (
        lines.length - firstIndex > maxLines ||
        (characters > maxCharacters && lines.length - firstIndex > 1)
      )
        drop();
    },
    read(after) {
      const start = Math.max(firstIndex, after - basePosition);
      return { lines: lines.slice(start), next: basePosition + lines.length };
    },
  };
}
