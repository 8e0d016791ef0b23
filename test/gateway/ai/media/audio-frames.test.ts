// Audio files whose headers declare one second, but whose frames last minutes: decoders and providers play
// the frames.
import { describe, expect, test } from 'vitest';
import { audioSeconds } from '../../../../src/gateway/ai/media/audio-duration.ts';
import { billableSeconds } from '../../../../src/gateway/ai/media/billable-audio.ts';
import { box, repeat } from './file-builders.ts';

function crc8(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x80 ? 7 : 0)) & 0xff;
  }
  return crc;
}

/** FLAC at 48 kHz with `frames` frames of 4,096 samples; the header declares `samples`. */
function flac(frames: number, samples: number, { frameBytes = 20 } = {}): Buffer {
  const info = Buffer.alloc(42);
  info.write('fLaC', 0, 'latin1');
  info.writeUInt32BE(0x80000022, 4);
  info.writeUIntBE(48_000 << 4, 18, 3);
  info.writeUInt32BE(samples, 22);
  const header = Buffer.from([0xff, 0xf8, 0xca, 0x08, 0x00]);
  const frame = Buffer.concat([header, Buffer.from([crc8(header)]), Buffer.alloc(frameBytes, 1)]);
  return Buffer.concat([info, repeat(frame, frames), Buffer.alloc(20)]);
}

function oggPage(granule: number, packets: Buffer[]): Buffer {
  const head = Buffer.alloc(27);
  head.write('OggS', 0, 'latin1');
  head.writeBigInt64LE(BigInt(granule), 6);
  head.writeUInt8(packets.length, 26);
  return Buffer.concat([head, Buffer.from(packets.map(({ length }) => length)), ...packets]);
}

/** Opus with `packets` packets of 60 ms; the last page declares `granule`. */
function opus(packets: number, granule: number): Buffer {
  const head = Buffer.alloc(19);
  head.write('OpusHead', 0, 'latin1');
  const packet = Buffer.alloc(45);
  packet[0] = 0x18;
  const pages = Array.from({ length: packets / 50 }, () => oggPage(granule, Array(50).fill(packet)));
  return Buffer.concat([oggPage(0, [head]), oggPage(0, [Buffer.from('OpusTags')]), ...pages]);
}

const numbers = (...values: number[]) => Buffer.from(Uint32Array.from(values).buffer).swap32();

/** A further track of an MP4 file; the handler is `vide` for video or `soun` for sound. */
const track = (handler: string) => box('trak', box('mdia', box('hdlr', numbers(0, 0), Buffer.from(handler))));

/** AAC at 16 kHz with `samples` samples of 1,024; the header declares `seconds`. */
function m4a(
  samples: number,
  seconds: number,
  { tracks = [], parts = [] }: { tracks?: Buffer[]; parts?: Buffer[] } = {},
): Buffer {
  const entry = Buffer.alloc(28);
  entry.writeUInt16BE(16_000, 24);
  const table = box(
    'stbl',
    box('stsd', numbers(0, 1), box('mp4a', entry)),
    box('stsz', numbers(0, 100, samples)),
  );
  const movie = box(
    'moov',
    box('mvhd', numbers(0, 0, 0, 1_000, seconds * 1_000, 0)),
    box('trak', box('mdia', box('minf', table))),
    ...tracks,
  );
  const sound = box('mdat', Buffer.alloc(samples * 100));
  return Buffer.concat([box('ftyp', Buffer.from('M4A ')), movie, sound, ...parts]);
}

const element = (id: number[], content: Buffer) => {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(0x10000000 + content.length);
  return Buffer.concat([Buffer.from(id), size, content]);
};

/** Opus in WebM with `blocks` blocks of 60 ms; the header declares one second. */
function webm(blocks: number): Buffer {
  const duration = Buffer.alloc(4);
  duration.writeFloatBE(1_000);
  const block = element([0xa3], Buffer.concat([Buffer.from([0x81, 0, 0, 0x80, 0x18]), Buffer.alloc(40)]));
  return Buffer.concat([
    element([0x1a, 0x45, 0xdf, 0xa3], Buffer.alloc(0)),
    element(
      [0x18, 0x53, 0x80, 0x67],
      Buffer.concat([
        element([0x15, 0x49, 0xa9, 0x66], element([0x44, 0x89], duration)),
        element([0x16, 0x54, 0xae, 0x6b], Buffer.from('A_OPUS')),
        element([0x1f, 0x43, 0xb6, 0x75], repeat(block, blocks)),
      ]),
    ),
  ]);
}

describe('billableSeconds', () => {
  test.each([
    ['FLAC', flac(3_000, 48_000), 1, (3_000 * 4_096) / 48_000],
    ['Opus', opus(4_000, 48_000), 1, 240],
    ['MP4', m4a(4_000, 1), 1, (4_000 * 1_024) / 16_000],
    ['WebM', webm(4_000), 1, 240],
  ])(
    'counts the frames of a %s file whose header declares a second',
    (_name, file, declaredSeconds, seconds) => {
      expect(audioSeconds(file)).toBe(declaredSeconds);
      expect(billableSeconds(file)).toBeCloseTo(seconds, 3);
    },
  );

  test.each([
    ['FLAC', flac(100, 100 * 4_096), (100 * 4_096) / 48_000],
    ['Opus', opus(100, 6 * 48_000), 6],
    ['MP4', m4a(250, 16), 16],
  ])('uses the duration of a correct %s header', (_name, file, seconds) => {
    expect(billableSeconds(file)).toBe(seconds);
  });

  const largeBox = box('mdat', Buffer.alloc(1_920_000 * 2));

  test.each([
    ['FLAC of a high rate', flac(100, 100 * 4_096, { frameBytes: 30_000 }), (100 * 4_096) / 48_000],
    ['MP4 with a video track', m4a(250, 16, { tracks: [track('vide')], parts: [largeBox] }), 16],
  ])('ignores the size of a %s', (_name, file, seconds) => {
    expect(file.length / 192_000).toBeGreaterThan(seconds * 1.2);
    expect(billableSeconds(file)).toBe(seconds);
  });

  test.each([
    ['fragments', m4a(250, 16, { parts: [box('moof'), largeBox] })],
    ['a sound track of another codec', m4a(250, 16, { tracks: [track('soun')], parts: [largeBox] })],
  ])('counts the bytes of an MP4 file with %s', (_name, file) => {
    expect(billableSeconds(file)).toBe(file.length / 192_000);
  });

  test('returns null for more frames than are counted', () => {
    // Each byte 0xff may begin a frame of FLAC. At most 200,000 such bytes or blocks are examined.
    expect(billableSeconds(Buffer.concat([flac(1, 48_000), Buffer.alloc(1_000_000, 0xff)]))).toBe(null);
    expect(billableSeconds(webm(200_001))).toBe(null);
  });
});
