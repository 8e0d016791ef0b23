// Parts of media files that tests build byte by byte.

export const repeat = (unit: Buffer, count: number): Buffer => Buffer.alloc(unit.length * count, unit);

/** A box of an MP4 file: its length, its name of four letters, and its content. */
export function box(name: string, ...content: Buffer[]): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(8 + content.reduce((sum, { length }) => sum + length, 0), 0);
  head.write(name, 4, 'latin1');
  return Buffer.concat([head, ...content]);
}
