import { describe, expect, test } from 'vitest';
import { createMp4Reader } from '../../../../src/gateway/ai/media/mp4.ts';
import { scriptedFilm } from '../../../support/provider-videos.ts';

async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < bytes.length; offset += size) yield bytes.subarray(offset, offset + size);
}

async function read(bytes: Buffer, size = 1_000) {
  const film = createMp4Reader();
  const chunks: Uint8Array[] = [];
  for await (const piece of film.passThrough(inPieces(bytes, size))) chunks.push(piece);
  expect(Buffer.concat(chunks)).toEqual(bytes);
  return film.properties();
}

describe('createMp4Reader', () => {
  const film = scriptedFilm({ seconds: 6.5, bytes: 300, width: 1920, height: 1080 });
  const properties = { mediaType: 'video/mp4', width: 1920, height: 1080, durationSeconds: 6.5 };

  test.each([1, 7, 8, 9, 16, 64, 10_000])('reads a video in pieces of %i bytes', async (size) => {
    expect(await read(film, size)).toEqual(properties);
  });

  test('reads a box with a 64-bit length', async () => {
    const longBox = Buffer.alloc(16 + 40, 1);
    longBox.writeUInt32BE(1, 0);
    longBox.write('mdat', 4, 'latin1');
    longBox.writeBigUInt64BE(BigInt(longBox.length), 8);
    expect(await read(Buffer.concat([film, longBox]), 5)).toEqual(properties);
  });

  test('reads a last box that extends to the end of the file', async () => {
    const endlessBox = Buffer.alloc(8 + 40, 1);
    endlessBox.writeUInt32BE(0, 0);
    endlessBox.write('mdat', 4, 'latin1');
    expect(await read(Buffer.concat([film, endlessBox]), 5)).toEqual(properties);
  });

  const wrongLength = Buffer.from(film);
  wrongLength.writeUInt32BE(3, 0);
  const truncatedIndex = Buffer.concat([
    film.subarray(0, 16),
    Buffer.from('\0\0\0\x14moov\0\0\xff\xfftrak\0\0\0\0', 'latin1'),
  ]);
  test.each([
    ['a file without its last byte', film.subarray(0, -1)],
    ['the first hundred bytes', film.subarray(0, 100)],
    ['JSON', Buffer.from('{"error":"there was no film"}')],
    ['an empty file', Buffer.alloc(0)],
    ['a box shorter than its head', wrongLength],
    ['a truncated index', truncatedIndex],
  ])('returns null for %s', async (_name, file) => {
    expect(await read(file)).toBeNull();
  });
});
