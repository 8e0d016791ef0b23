// Messages of PostgreSQL's protocol, as the thread of the embedded database reads and writes them.

export const sync: Uint8Array = Uint8Array.of(0x53, 0, 0, 0, 4);

/**
 * Whether the answer ends with ReadyForQuery outside of a transaction, so that the peer's turn is over.
 */
export function isIdle(answer: Uint8Array): boolean {
  return answer.at(-6) === 0x5a && answer.at(-1) === 0x49;
}

/** The messages of one type within an answer. */
export function findMessages(answer: Uint8Array, type: string): Uint8Array[] {
  const view = new DataView(answer.buffer, answer.byteOffset, answer.byteLength);
  const matches: Uint8Array[] = [];
  for (let offset = 0; offset + 5 <= answer.length;) {
    const end = offset + 1 + view.getUint32(offset + 1);
    if (answer[offset] === type.charCodeAt(0)) matches.push(answer.slice(offset, end));
    offset = end;
  }
  return matches;
}

export function simpleQuery(text: string): Uint8Array {
  const message = Buffer.from(`Q\0\0\0\0${text}\0`);
  message.writeUInt32BE(message.length - 1, 1);
  return message;
}

export function fatalError(code: string, text: string): Uint8Array {
  const message = Buffer.from(`E\0\0\0\0SFATAL\0VFATAL\0C${code}\0M${text}\0\0`);
  message.writeUInt32BE(message.length - 1, 1);
  return new Uint8Array(message);
}

/** The rows of the answer to a simple query, each column as text or null. */
export function rowsOf(answer: Uint8Array): (string | null)[][] {
  return findMessages(answer, 'D').map((row) => {
    const bytes = Buffer.from(row.buffer, row.byteOffset, row.byteLength);
    const columns: (string | null)[] = [];
    // Type, length and the number of columns come first; a length of -1 is NULL.
    for (let offset = 7; columns.length < bytes.readInt16BE(5);) {
      const length = bytes.readInt32BE(offset);
      offset += 4;
      columns.push(length < 0 ? null : bytes.toString('utf8', offset, offset + length));
      offset += Math.max(0, length);
    }
    return columns;
  });
}
