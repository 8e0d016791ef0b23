// Reads some lines of a text file, even if the file is too large to be read as a whole: it is read in
// pieces from the start, and only the requested lines stay in memory.
import { isUtf8 } from 'node:buffer';
import type { FileHandle } from 'node:fs/promises';

export interface LineRange {
  /** The first line, counted from 1. */
  offset: number;
  /** How many lines. */
  limit: number;
  maxBytes: number;
}

export interface LinesResult {
  content: string;
  /** The number of lines in `content`. */
  lines: number;
  /** The first line that was not read; null at the end of the file. */
  nextOffset: number | null;
}

/** Why no line can be returned. */
type LinesRefusal = 'binary' | 'too_long' | 'too_far';

const pieceBytes = 64 * 1024;
/** Lines beyond these bytes of a file cannot be read. */
export const maxScannedBytes = 256 * 1024 * 1024;
const newline = 0x0a;

/**
 * `binary` for a file that is not UTF-8 text, `too_long` when the first line exceeds `maxBytes`, and
 * `too_far` when it is not complete within `maxScannedBytes`.
 */
export async function readLines(
  file: Pick<FileHandle, 'read'>,
  range: LineRange,
): Promise<LinesResult | LinesRefusal> {
  const collector = createCollector(range);
  const buffer = Buffer.alloc(pieceBytes);
  for (let scannedBytes = 0; scannedBytes < maxScannedBytes && !collector.isFull();) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, null);
    if (bytesRead === 0) {
      collector.end();
      break;
    }
    scannedBytes += bytesRead;
    collector.add(buffer.subarray(0, bytesRead));
  }
  // The limit of lines was reached where a chunk ends, which may be the end of the file.
  if (collector.mayBeAtEnd()) {
    const { bytesRead } = await file.read(buffer, 0, 1, null);
    if (bytesRead === 0) collector.end();
  }
  return collector.result();
}

/** Collects whole lines up to `maxBytes`, and at most one byte beyond. */
function createCollector({ offset, limit, maxBytes }: LineRange) {
  const pieces: Buffer[] = [];
  let lineNumber = 1;
  let lineCount = 0;
  let bytes = 0;
  // The bytes of the whole lines among `bytes`; the rest is the beginning of the next line.
  let wholeBytes = 0;
  let isAtEnd = false;
  /** Whether the last chunk has bytes after the collected lines. */
  let hasMore = false;

  function addLinePart(part: Buffer, { endsLine }: { endsLine: boolean }): void {
    if (lineNumber >= offset) {
      pieces.push(Buffer.from(part.subarray(0, Math.max(0, maxBytes + 1 - bytes))));
      bytes += part.length;
      if (endsLine && bytes <= maxBytes) {
        lineCount += 1;
        wholeBytes = bytes;
      }
    }
    if (endsLine) lineNumber += 1;
  }

  const isFull = () => lineCount === limit || bytes > maxBytes;
  return {
    isFull,
    add(chunk: Buffer) {
      let start = 0;
      while (start < chunk.length && !isFull()) {
        const end = chunk.indexOf(newline, start);
        const endsLine = end >= 0;
        const nextStart = endsLine ? end + 1 : chunk.length;
        addLinePart(chunk.subarray(start, nextStart), { endsLine });
        start = nextStart;
      }
      hasMore = start < chunk.length;
    },
    mayBeAtEnd: () => !isAtEnd && lineCount === limit && !hasMore,
    end() {
      isAtEnd = true;
      if (bytes > wholeBytes && bytes <= maxBytes) addLinePart(Buffer.alloc(0), { endsLine: true });
    },
    result(): LinesResult | LinesRefusal {
      if (lineCount === 0 && bytes > maxBytes) return 'too_long';
      if (lineCount === 0 && !isAtEnd) return 'too_far';
      const content = Buffer.concat(pieces).subarray(0, wholeBytes);
      if (content.includes(0) || !isUtf8(content)) return 'binary';
      return {
        content: content.toString('utf8'),
        lines: lineCount,
        nextOffset: isAtEnd ? null : offset + lineCount,
      };
    },
  };
}
