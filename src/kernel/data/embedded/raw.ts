// The wire protocol of PGlite as bytes. Called alone, `execProtocolRawSync` also parses each answer and keeps
// the messages until a call that returns them, so a thread that makes only raw calls would keep every row it
// has ever read. `execProtocolRawStream` makes the same call after it has replaced that parser with
// `onRawData`, so nothing is kept; the work is done by the time it returns its promise.

/** The part of PGlite that is used here. */
export interface RawEngine {
  execProtocolRawSync(bytes: Uint8Array): Uint8Array;
  execProtocolRawStream(
    bytes: Uint8Array,
    options: { syncToFs: boolean; onRawData(piece: Uint8Array): void },
  ): Promise<void>;
}

/** Throws what the engine throws. Each answer has an ArrayBuffer of its own. */
export function rawProtocol(engine: RawEngine): (bytes: Uint8Array) => Uint8Array {
  const execute = engine.execProtocolRawSync.bind(engine);
  let outcome: { hasFailed: false } | { hasFailed: true; error: unknown } | undefined;
  // `execProtocolRawStream` calls this method. Its outcome is recorded here, because the promise of the
  // stream would report an error only after this function has returned.
  engine.execProtocolRawSync = (bytes) => {
    try {
      const answer = execute(bytes);
      outcome = { hasFailed: false };
      return answer;
    } catch (error) {
      outcome = { hasFailed: true, error };
      throw error;
    }
  };
  return (bytes) => {
    const pieces: Uint8Array[] = [];
    outcome = undefined;
    // Copy each piece, because the engine reuses its memory.
    const onRawData = (piece: Uint8Array) => void pieces.push(piece.slice());
    engine.execProtocolRawStream(bytes, { syncToFs: false, onRawData }).catch(() => {});
    const result = outcome as { hasFailed: false } | { hasFailed: true; error: unknown } | undefined;
    if (result === undefined) throw new Error('The engine did not execute the statement at once.');
    if (result.hasFailed) throw result.error;
    // No piece: messages without an answer of their own, such as a Parse before its Sync.
    return concatenate(pieces);
  };
}

function concatenate(pieces: readonly Uint8Array[]): Uint8Array {
  const [firstPiece] = pieces;
  if (firstPiece !== undefined && pieces.length === 1) return firstPiece;
  const result = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const piece of pieces) {
    result.set(piece, offset);
    offset += piece.length;
  }
  return result;
}
