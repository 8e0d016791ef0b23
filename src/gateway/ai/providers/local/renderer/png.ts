// Writes PNG files: eight bits a channel, no transparency, with text chunks that describe the image.
import { crc32, deflateSync } from 'node:zlib';
import type { Canvas } from './canvas.ts';

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
const bytesPerPixel = 3;
// Between keyword and text of an iTXt chunk: the end of the keyword, no compression, compression
// method 0, an empty language tag and an empty translated keyword, each ended by a zero byte.
const uncompressedText = Buffer.alloc(5);

/** Encodes the canvas. `texts` are iTXt chunks by their keyword: Software, Title, Description, Comment. */
export function encodePng(canvas: Canvas, texts: Readonly<Record<string, string>>): Uint8Array {
  const { width, height } = canvas;
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // Bit depth 8, color type RGB, deflate, adaptive filtering, no interlacing.
  header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([
    signature,
    chunk('IHDR', header),
    ...Object.entries(texts).map(([keyword, text]) =>
      chunk(
        'iTXt',
        Buffer.concat([Buffer.from(keyword, 'latin1'), uncompressedText, Buffer.from(text, 'utf8')]),
      ),
    ),
    chunk('IDAT', deflateSync(filteredRows(canvas), { level: 6 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function chunk(name: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(name, 'latin1'), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, checksum]);
}

/**
 * Rows with the filter "up": differences from the pixel above are small in smooth images and compress well.
 */
function filteredRows({ width, height, rgba }: Canvas): Buffer {
  const rowBytes = 1 + width * bytesPerPixel;
  const rows = Buffer.alloc(height * rowBytes);
  const upFilter = 2;
  for (let y = 0; y < height; y += 1) {
    let offset = y * rowBytes;
    rows[offset++] = upFilter;
    for (let x = 0; x < width; x += 1) {
      const pixel = (y * width + x) * 4;
      for (let channel = 0; channel < bytesPerPixel; channel += 1) {
        const byteAbove = y === 0 ? 0 : (rgba[pixel - width * 4 + channel] ?? 0);
        rows[offset++] = (rgba[pixel + channel] ?? 0) - byteAbove;
      }
    }
  }
  return rows;
}
