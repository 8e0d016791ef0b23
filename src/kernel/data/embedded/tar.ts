// Reads a tar archive as it arrives (ustar, as PGlite and `tar` write it for a cluster: short names, no
// links).

export type TarPart =
  | { kind: 'folder' | 'file'; name: string }
  /** Bytes of the last file, in their order. */
  | { kind: 'content'; bytes: Buffer };

const blockBytes = 512;

/** Reads the stream to its end. Throws for an archive that ends within a file. */
export async function* readTar(stream: AsyncIterable<Buffer>): AsyncGenerator<TarPart> {
  const source = new ByteSource(stream);
  for (;;) {
    const header = await source.take(blockBytes);
    const entry = header && parseHeader(header);
    if (entry === undefined) break;
    yield { kind: entry.isFolder ? 'folder' : 'file', name: entry.name };
    for (let missingBytes = entry.bytes; missingBytes > 0;) {
      const bytes = await source.takeUpTo(missingBytes);
      if (bytes === undefined) throw new Error(`The archive ends within the file ${entry.name}.`);
      missingBytes -= bytes.length;
      yield { kind: 'content', bytes };
    }
    await source.take((blockBytes - (entry.bytes % blockBytes)) % blockBytes);
  }
  // Discard the blocks of zeros at the end of the archive.
  while ((await source.takeUpTo(Number.POSITIVE_INFINITY)) !== undefined);
}

/** Undefined for a block of zeros, which ends the archive. */
function parseHeader(header: Buffer): { name: string; isFolder: boolean; bytes: number } | undefined {
  if (header[0] === 0) return undefined;
  const text = (start: number, length: number): string =>
    header.toString('latin1', start, start + length).replace(/\0.*$/s, '');
  const prefix = text(257, 5) === 'ustar' ? text(345, 155) : '';
  return {
    name: `${prefix}/${text(0, 100)}`,
    isFolder: header[156] === 0x35,
    bytes: Number.parseInt(text(124, 12), 8) || 0,
  };
}

/** Reads a given number of bytes at a time from a stream of chunks. */
class ByteSource {
  readonly #chunks: AsyncIterator<Buffer, unknown>;
  #bytes: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** Returns exactly `count` bytes; undefined if fewer are left. */
  async take(count: number): Promise<Buffer | undefined> {
    while (this.#bytes.length < count) if (!(await this.#readChunk())) return undefined;
    return this.#split(count);
  }

  /** Returns between one and `count` bytes; undefined at the end. */
  async takeUpTo(count: number): Promise<Buffer | undefined> {
    if (this.#bytes.length === 0 && !(await this.#readChunk())) return undefined;
    return this.#split(count);
  }

  #split(count: number): Buffer {
    const bytes = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.subarray(bytes.length);
    return bytes;
  }

  async #readChunk(): Promise<boolean> {
    const chunk = await this.#chunks.next();
    if (chunk.done === true) return false;
    this.#bytes = this.#bytes.length > 0 ? Buffer.concat([this.#bytes, chunk.value]) : chunk.value;
    return true;
  }
}
