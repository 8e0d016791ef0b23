// The wire protocol of PGlite as bytes. Its `execProtocolRawSync` also parses each answer and keeps
// the messages until a call that returns them, so a thread that makes only raw calls would keep
// every row it has ever read. `execProtocolRawStream` keeps nothing, and it has done its work by the
// time it returns its promise.

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
  let outcome: { answer: Uint8Array } | { error: unknown } | undefined;
  // `execProtocolRawStream` calls this method. Its outcome is recorded here, because the promise of the
  // stream would report an error only after this function has returned.
  engine.execProtocolRawSync = (bytes) => {
    try {
      const answer = execute(bytes);
      outcome = { answer };
      return answer;
    } catch (error) {
      outcome = { error };
      throw error;
    }
  };
  return (bytes) => {
    const pieces: Uint8Array[] = [];
    outcome = undefined;
    // Copy each piece, because the engine reuses its memory.
    const onRawData = (piece: Uint8Array) => void pieces.push(piece.slice());
    engine.execProtocolRawStream(bytes, { syncToFs: false, onRawData }).catch(() => {});
    const result = outcome as { answer: Uint8Array } | { error: unknown } | undefined;
    if (result === undefined) throw new Error('The engine did not execute the statement at once.');
    if ('error' in result) throw result.error;
    return pieces.length === 0 ? result.answer : concatenate(pieces);
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
