// Estimates the tokens of a file in a prompt: pictures by their pixels, as providers
// count them, and never by their base64.

/** Kinds of input, as the gateway's catalog names them. */
export type FileKind = 'text' | 'image' | 'audio' | 'video' | 'file';

export function fileKind(mediaType: string): FileKind {
  const family = mediaType.split('/')[0] ?? '';
  return family === 'text' || family === 'image' || family === 'audio' || family === 'video'
    ? family
    : 'file';
}

// Providers scale a picture down to about this edge, and count about 750 pixels as a
// token. Tiles of 512 pixels, as other providers count, come to less.
const maxEdge = 1_568;
const pixelsPerToken = 750;
const minPictureTokens = 85;
const maxPictureTokens = 1_600;
// Providers send each page of a PDF to the model as text and as a picture.
const tokensPerPage = 2_000;
const bytesPerPage = 50_000;
// 32 tokens a second at 16,000 bytes a second.
const bytesPerAudioToken = 500;

/** `data` is base64. */
export function fileTokens(mediaType: string, data: string): number {
  const bytes = Math.ceil((data.length * 3) / 4);
  switch (fileKind(mediaType)) {
    case 'image':
      return pictureTokens(pictureSize(data));
    case 'text':
      return Math.ceil(bytes / 4);
    case 'audio':
    case 'video':
      return Math.ceil(bytes / bytesPerAudioToken);
    case 'file':
      return countPages(data, bytes) * tokensPerPage;
  }
}

export interface PictureSize {
  width: number;
  height: number;
}

export function pictureTokens(size: PictureSize | undefined): number {
  if (size === undefined) return maxPictureTokens;
  const scale = Math.min(1, maxEdge / Math.max(size.width, size.height));
  const tokens = Math.ceil((size.width * scale * size.height * scale) / pixelsPerToken);
  return Math.min(Math.max(tokens, minPictureTokens), maxPictureTokens);
}

// The headers and metadata before the frame of nearly every JPEG are shorter.
const headerLength = 256 * 1024;

/** Undefined for a format that is not PNG, GIF, WebP or JPEG. */
export function pictureSize(data: string): PictureSize | undefined {
  const bytes = Buffer.from(data.slice(0, headerLength), 'base64');
  const size = pngSize(bytes) ?? gifSize(bytes) ?? webpSize(bytes) ?? jpegSize(bytes);
  return size !== undefined && size.width > 0 && size.height > 0 ? size : undefined;
}

function pngSize(bytes: Buffer): PictureSize | undefined {
  if (bytes.length < 24 || bytes.readUInt32BE(0) !== 0x89504e47) return undefined;
  return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
}

function gifSize(bytes: Buffer): PictureSize | undefined {
  if (bytes.length < 10 || bytes.toString('latin1', 0, 4) !== 'GIF8') return undefined;
  return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
}

function webpSize(bytes: Buffer): PictureSize | undefined {
  if (bytes.length < 30 || bytes.toString('latin1', 8, 12) !== 'WEBP') return undefined;
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8X':
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 };
    }
    case 'VP8 ':
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
    default:
      return undefined;
  }
}

/** The first frame header (SOF), after segments that each state their length. */
function jpegSize(bytes: Buffer): PictureSize | undefined {
  if (bytes.length < 4 || bytes.readUInt16BE(0) !== 0xffd8) return undefined;
  for (let offset = 2; offset + 9 < bytes.length && bytes[offset] === 0xff;) {
    const marker = bytes[offset + 1] as number;
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return { width: bytes.readUInt16BE(offset + 7), height: bytes.readUInt16BE(offset + 5) };
    offset += 2 + bytes.readUInt16BE(offset + 2);
  }
  return undefined;
}

function countPages(data: string, bytes: number): number {
  const pages = Buffer.from(data, 'base64')
    .toString('latin1')
    .match(/\/Type\s*\/Page(?![A-Za-z])/g)?.length;
  return pages ?? Math.max(1, Math.ceil(bytes / bytesPerPage));
}
