import { describe, expect, test } from 'vitest';
import { audioSeconds } from '../../../../src/gateway/ai/media/audio-duration.ts';
import { box, repeat } from './file-builders.ts';

/** WAV at 8,000 bytes a second with `dataBytes` bytes; the header declares `length`. */
function wav(length: number, dataBytes: number): Buffer {
  return Buffer.concat([
    Buffer.from('RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0', 'latin1'),
    Buffer.from('LIST\x03\0\0\0abc\0data', 'latin1'),
    Buffer.from(Uint32Array.of(length).buffer),
    Buffer.alloc(dataBytes),
  ]);
}

/** FLAC of 88,200 samples at 44,100 a second. */
function flac(): Buffer {
  const file = Buffer.concat([Buffer.from('fLaC\x80\0\0\x22', 'latin1'), Buffer.alloc(34)]);
  file.writeUIntBE(44_100 << 4, 18, 3);
  file.writeUInt32BE(88_200, 22);
  return file;
}

function oggPage(position: bigint, body: Buffer): Buffer {
  const head = Buffer.alloc(28);
  head.write('OggS', 0, 'latin1');
  head.writeBigInt64LE(position, 6);
  head.writeUInt8(1, 26);
  head.writeUInt8(body.length, 27);
  return Buffer.concat([head, body]);
}

/** Opus of 72,000 samples at 48,000 a second, after 312 samples that decoders skip. */
function opus(): Buffer {
  const head = Buffer.concat([
    Buffer.from('OpusHead\x01\x01', 'latin1'),
    Buffer.from([0x38, 1]),
    Buffer.alloc(7),
  ]);
  return Buffer.concat([oggPage(0n, head), oggPage(312n + 72_000n, Buffer.alloc(10))]);
}

/** MPEG 1, layer 3, 128 kbit/s, 44,100 Hz: 417 bytes a frame, 1,152 samples. */
function mp3Frame(): Buffer {
  const frame = Buffer.alloc(417);
  frame.writeUInt32BE(0xfffb9000, 0);
  return frame;
}

/** One frame with a tag that declares 1,000 frames. */
function taggedMp3(): Buffer {
  const frame = mp3Frame();
  frame.write('Xing', 36, 'latin1');
  frame.writeUInt32BE(1, 40);
  frame.writeUInt32BE(1_000, 44);
  return frame;
}

const id3 = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\x0a', 'latin1'), Buffer.alloc(10)]);

/** MP4 of 2,500 units, 1,000 a second. */
function mp4(): Buffer {
  const header = Buffer.alloc(100);
  header.writeUInt32BE(1_000, 12);
  header.writeUInt32BE(2_500, 16);
  return Buffer.concat([
    box('ftyp', Buffer.from('M4A ')),
    box('mdat', Buffer.alloc(50)),
    box('moov', box('mvhd', header)),
  ]);
}

/** WebM of 3,250 ms in a segment of unknown length. */
function webm(): Buffer {
  const duration = Buffer.alloc(8);
  duration.writeDoubleBE(3_250);
  const info = Buffer.concat([Buffer.from('2ad7b1830f4240448988', 'hex'), duration]);
  return Buffer.concat([
    Buffer.from('1a45dfa3801853806701ffffffffffffff1549a966', 'hex'),
    Buffer.from([0x80 + info.length]),
    info,
  ]);
}

describe('audioSeconds', () => {
  test.each([
    ['wav', wav(8_000, 8_000), 1],
    ['wav without a length', wav(0xffff_ffff, 4_000), 0.5],
    ['flac', flac(), 2],
    ['ogg', opus(), 1.5],
    ['mp3', Buffer.concat([id3, repeat(mp3Frame(), 100)]), (100 * 1_152) / 44_100],
    ['mp3 with a tag', taggedMp3(), (1_000 * 1_152) / 44_100],
    ['mp4', mp4(), 2.5],
    ['webm', webm(), 3.25],
  ])('reads the duration of %s', (_name, file, seconds) => {
    expect(audioSeconds(file)).toBeCloseTo(seconds, 6);
  });

  test.each([
    ['an empty file', Buffer.alloc(0)],
    ['the magic number of wav alone', Buffer.from('RIFF')],
    ['the magic number of flac alone', Buffer.from('fLaC')],
    ['the magic number of ogg alone', Buffer.from('OggS')],
    ['an mp4 file with an empty index', Buffer.from('\0\0\0\x08ftyp\0\0\0\0moov', 'latin1')],
    ['the magic number of webm alone', Buffer.from([0x1a, 0x45, 0xdf, 0xa3])],
    ['text', Buffer.from('hello')],
    ['the magic number of an ID3 tag alone', Buffer.from('ID3')],
    ['a cut wav header', wav(8_000, 8_000).subarray(0, 40)],
    ['ones', Buffer.alloc(1_000, 0xff)],
    ['zeros', Buffer.alloc(1_000, 0)],
  ])('returns null for %s', (_name, file) => {
    expect(audioSeconds(file)).toBeNull();
  });

  test.each([
    ['wav', wav(8_000, 100)],
    [
      'mp4',
      Buffer.concat([
        Buffer.from('\0\0\0\x10ftypM4A \0\0\0\0\0\0\0\x20moov\0\0\0\x18mvhd', 'latin1'),
        Buffer.alloc(40),
      ]),
    ],
  ])('returns seconds or null for any changed byte of a %s header', (_name, file) => {
    for (let index = 0; index < 60; index += 1) {
      for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
        const changedFile = Buffer.from(file);
        changedFile[index] = value;
        const seconds = audioSeconds(changedFile);
        expect(seconds === null || (Number.isFinite(seconds) && seconds >= 0)).toBe(true);
      }
    }
  });
});
