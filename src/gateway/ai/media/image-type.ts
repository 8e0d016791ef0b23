// Detects the type and size of an image from its first bytes, never from a declared type. Only
// the formats listed here are stored and served, so that no file can run code in a browser.
import type { Size } from '../hub/media-model.ts';

/** Null for any format except PNG, GIF, WebP and JPEG. */
export function detectImage(bytes: Uint8Array): ({ mediaType: string } & Size) | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (start: number, end: number) => Buffer.from(bytes.subarray(start, end)).toString('latin1');
  if (bytes.length < 30) return null;
  if (text(0, 8) === '\x89PNG\r\n\x1a\n') return imageOf('image/png', view.getUint32(16), view.getUint32(20));
  if (text(0, 4) === 'GIF8') return imageOf('image/gif', view.getUint16(6, true), view.getUint16(8, true));
  if (text(0, 4) === 'RIFF' && text(8, 12) === 'WEBP') return webpOf(view, text(12, 16));
  if (view.getUint16(0) === 0xffd8) return jpegOf(view);
  return null;
}

function imageOf(mediaType: string, width: number, height: number): ({ mediaType: string } & Size) | null {
  return width > 0 && height > 0 ? { mediaType, width, height } : null;
}

function webpOf(view: DataView, kind: string): ReturnType<typeof imageOf> {
  if (kind === 'VP8X') return imageOf('image/webp', 1 + readUint24(view, 24), 1 + readUint24(view, 27));
  if (kind === 'VP8 ')
    return imageOf('image/webp', view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff);
  if (kind !== 'VP8L') return null;
  const bits = view.getUint32(21, true);
  return imageOf('image/webp', 1 + (bits & 0x3fff), 1 + ((bits >>> 14) & 0x3fff));
}

function readUint24(view: DataView, offset: number): number {
  return view.getUint16(offset, true) + view.getUint8(offset + 2) * 0x10000;
}

// Segments and fill bytes before the frame header. An image of 30 MiB with full segments has 500.
const maxSegments = 10_000;

/** The size of a JPEG is in its frame header, after other segments. */
function jpegOf(view: DataView): ReturnType<typeof imageOf> {
  for (let offset = 2, segments = 0; offset + 9 < view.byteLength && segments < maxSegments; segments += 1) {
    if (view.getUint8(offset) !== 0xff) return null;
    const marker = view.getUint8(offset + 1);
    if (marker === 0xff) {
      offset += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return imageOf('image/jpeg', view.getUint16(offset + 7), view.getUint16(offset + 5));
    offset += 2 + view.getUint16(offset + 2);
  }
  return null;
}
