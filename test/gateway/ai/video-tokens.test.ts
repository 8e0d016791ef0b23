// Videos with few bytes that play for long: models read frames at fixed intervals, so their tokens depend on
// the playing time.
import { describe, expect, test } from 'vitest';
import { sizeOf } from '../../../src/gateway/ai/metering/measure.ts';
import { box } from './media/file-builders.ts';
import { wavFile } from './wav.ts';

const numbers = (...values: number[]) => Buffer.from(Uint32Array.from(values).buffer).swap32();
/** The upper bound of medium-tokens.ts. */
const tokensPerSecond = 400;

/** A video whose header and samples have these durations in seconds. */
function videoFile(headerSeconds: number, sampleSeconds: number): Buffer {
  const times = box('stts', numbers(0, 1, sampleSeconds, 1_000));
  return Buffer.concat([
    box('ftyp', Buffer.from('isom')),
    box(
      'moov',
      box('mvhd', numbers(0, 0, 0, 1_000, headerSeconds * 1_000, 0)),
      box(
        'trak',
        box(
          'mdia',
          box('mdhd', numbers(0, 0, 0, 1_000, sampleSeconds * 1_000)),
          box('minf', box('stbl', times)),
        ),
      ),
    ),
    box('mdat', Buffer.alloc(1_000)),
  ]);
}

function tokensOf(content: Buffer): number {
  const url = `data:video/mp4;base64,${content.toString('base64')}`;
  const messages = [{ role: 'user', content: [{ type: 'video_url', video_url: { url } }] }];
  return sizeOf({ model: 'x', messages }, 'chat').mediaTokens;
}

/** The bound of content that is sent as a file. */
function tokensOfFile(format: 'chat' | 'responses' | 'messages' | 'stream', data: string): number {
  const parts = {
    chat: { type: 'file', file: { file_data: data } },
    responses: { type: 'input_file', file_data: data },
    messages: {
      type: 'document',
      source: { type: 'base64', media_type: 'application/octet-stream', data },
    },
    stream: { type: 'file', mediaType: 'application/octet-stream', data },
  };
  const turns = [{ role: 'user', content: [parts[format]] }];
  const members = { chat: 'messages', messages: 'messages', responses: 'input', stream: 'prompt' };
  return sizeOf({ model: 'x', [members[format]]: turns }, format).mediaTokens;
}

describe('the bound of a video in a file', () => {
  const hour = videoFile(3_600, 3_600).toString('base64');

  test.each(['chat', 'responses'] as const)('follows its length by the data URL of %s', (format) => {
    expect(tokensOfFile(format, `data:video/mp4;base64,${hour}`)).toBe(3_600 * tokensPerSecond);
  });

  test.each(['chat', 'responses', 'messages', 'stream'] as const)(
    'follows its length by its first bytes in %s',
    (format) => {
      expect(tokensOfFile(format, hour)).toBe(3_600 * tokensPerSecond);
    },
  );

  test('follows its length under another media type', () => {
    expect(tokensOfFile('responses', `data:application/pdf;base64,${hour}`)).toBe(3_600 * tokensPerSecond);
  });

  test('is never below its bytes', () => {
    const content = Buffer.concat([videoFile(10, 10), Buffer.alloc(500_000)]).toString('base64');
    expect(tokensOfFile('responses', content)).toBeGreaterThan(500_000);
  });

  test('follows the length of audio too', () => {
    // 16 samples a second of one byte: 500 seconds, at up to 50 tokens a second (medium-tokens.ts).
    const audio = wavFile(8_000, { samplesPerSecond: 16, bytesPerSample: 1 });
    const url = `data:audio/wav;base64,${audio.toString('base64')}`;
    expect(tokensOfFile('responses', url)).toBeGreaterThanOrEqual(500 * 50);
  });
});

describe('the bound of a video', () => {
  test('follows its length and not its bytes', () => {
    expect(tokensOf(videoFile(3_600, 3_600))).toBe(3_600 * tokensPerSecond);
  });

  test('follows the samples when the header declares less', () => {
    expect(tokensOf(videoFile(1, 3_600))).toBe(3_600 * tokensPerSecond);
  });

  test('without a readable length is the bound of content at a URL', () => {
    expect(tokensOf(Buffer.alloc(1_000, 7))).toBe(262_144);
  });

  test('is never below its bytes', () => {
    expect(tokensOf(Buffer.concat([videoFile(10, 10), Buffer.alloc(500_000)]))).toBeGreaterThan(500_000);
  });
});
