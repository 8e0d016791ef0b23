// Callers' files are parsed on the event loop, so the search for a header is bounded. In each file
// here the header follows more parts than in any real file, so that an unbounded search would find
// it.
import { describe, expect, test } from 'vitest';
import { audioSeconds } from '../../../../src/gateway/ai/media/audio-duration.ts';
import { billableSeconds } from '../../../../src/gateway/ai/media/billable-audio.ts';
import { detectImage } from '../../../../src/gateway/ai/media/image-type.ts';
import { box, repeat } from './file-builders.ts';

/** One part more than the parsers search. */
const tooManyParts = 100_001;

describe('audioSeconds', () => {
  const format = Buffer.from('fmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0', 'latin1');
  const wav = (count: number) =>
    Buffer.concat([
      Buffer.from('RIFF\0\0\0\0WAVE', 'latin1'),
      format,
      repeat(Buffer.from('LIST\0\0\0\0', 'latin1'), count),
      Buffer.from('data\x40\x1f\0\0', 'latin1'),
      Buffer.alloc(8_000),
    ]);

  const header = Buffer.alloc(20);
  header.writeUInt32BE(1_000, 12);
  header.writeUInt32BE(2_000, 16);
  const mp4 = (count: number) =>
    Buffer.concat([box('ftyp'), repeat(box('free'), count), box('moov', box('mvhd', header))]);

  const duration = Buffer.from([0x44, 0x89, 0x84, 0x45, 0x3b, 0x80, 0]);
  const info = Buffer.concat([Buffer.from([0x15, 0x49, 0xa9, 0x66, 0x80 + duration.length]), duration]);
  const webm = (count: number) =>
    Buffer.concat([
      Buffer.from([0x1a, 0x45, 0xdf, 0xa3, 0x80, 0x18, 0x53, 0x80, 0x67, 0xff]),
      repeat(Buffer.from([0xec, 0x80]), count),
      info,
    ]);

  test.each([
    ['wav', wav, 1],
    ['mp4', mp4, 2],
    ['webm', webm, 3],
  ])('bounds the search of a %s file', (_name, file, seconds) => {
    expect(audioSeconds(file(10))).toBe(seconds);
    expect(audioSeconds(file(tooManyParts))).toBe(null);
  });

  test('counts every frame of a long mp3 file', () => {
    // MPEG 2, layer 3, 8 kbit/s, 24,000 Hz: 24 bytes a frame, 576 samples. No smaller frame exists.
    const frame = Buffer.alloc(24);
    frame.writeUInt32BE(0xfff31400, 0);
    expect(audioSeconds(repeat(frame, 1_000_000))).toBeCloseTo(24_000, 3);
  });
});

describe('billableSeconds', () => {
  // MPEG 1, layer 3, 32 kbit/s, 48,000 Hz, mono: 96 bytes and 24 ms a frame.
  const frame = Buffer.alloc(96);
  frame.writeUInt32BE(0xfffb14c0, 0);
  const taggedFrame = Buffer.from(frame);
  taggedFrame.write('Info', 21, 'latin1');
  taggedFrame.writeUInt32BE(1, 25);
  taggedFrame.writeUInt32BE(1, 29);
  const mp3 = repeat(frame, 10_000);

  test('counts the frames of an mp3 with a false tag', () => {
    expect(billableSeconds(Buffer.concat([taggedFrame, mp3]))).toBeCloseTo(240, 3);
  });

  test('counts mp3 frames after other bytes', () => {
    expect(billableSeconds(Buffer.concat([frame, Buffer.alloc(100), mp3]))).toBeCloseTo(240.024, 3);
  });

  test('ignores a wav byte rate that decoders ignore', () => {
    // PCM with 16 bits at 8 kHz, which is 16,000 bytes a second, and a byte rate of 2^32 - 1.
    const header = Buffer.from(
      '524946460000000057415645666d74201000000001000100401f0000ffffffff020010006461746100000000',
      'hex',
    );
    expect(billableSeconds(Buffer.concat([header, Buffer.alloc(1_600_000)]))).toBe(100);
  });

  test('ignores the duration of an mp4 without a track', () => {
    const header = Buffer.alloc(100);
    header.writeUInt32BE(1_000, 12);
    header.writeUInt32BE(1, 16);
    const file = Buffer.concat([
      box('ftyp', Buffer.from('M4A ')),
      box('moov', box('mvhd', header)),
      box('mdat', Buffer.alloc(1_920_000)),
    ]);
    expect(audioSeconds(file)).toBe(0.001);
    expect(billableSeconds(file)).toBe(null);
  });
});

describe('detectImage', () => {
  const frame = Buffer.from([0xff, 0xc2, 0, 11, 8, 0, 5, 0, 7, 0, 0, 0, 0]);
  test.each([
    ['fill bytes', Buffer.from([0xff])],
    ['segments', Buffer.from([0xff, 0xe0, 0, 2])],
  ])('bounds the number of %s', (_name, unit) => {
    const jpeg = (count: number) =>
      Buffer.concat([Buffer.from([0xff, 0xd8]), repeat(unit, count), frame, Buffer.alloc(30)]);
    expect(detectImage(jpeg(10))).toEqual({ mediaType: 'image/jpeg', width: 7, height: 5 });
    expect(detectImage(jpeg(10_001))).toBe(null);
  });
});
