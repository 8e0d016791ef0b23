// Reads 8-bit PNG files so that tests can inspect pixels. Written from the format's specification,
// independently of the renderer's writer.
import { crc32, inflateSync } from 'node:zlib';

export interface Picture {
  width: number;
  height: number;
  /** Red, green and blue of a pixel. */
  pixel(x: number, y: number): readonly number[];
  texts: Record<string, string>;
}

/** Throws for a file that violates the format. */
export function decodePng(file: Buffer): Picture {
  if (file.toString('latin1', 0, 8) !== '\x89PNG\r\n\x1a\n') throw new Error('not a PNG file');
  const data: Buffer[] = [];
  const texts: Record<string, string> = {};
  let [width, height, channels, hasEnded] = [0, 0, 0, false];
  for (let offset = 8; offset < file.length;) {
    const length = file.readUInt32BE(offset);
    const name = file.toString('latin1', offset + 4, offset + 8);
    const body = file.subarray(offset + 8, offset + 8 + length);
    if (crc32(file.subarray(offset + 4, offset + 8 + length)) !== file.readUInt32BE(offset + 8 + length))
      throw new Error(`the sum of ${name} is wrong`);
    if (name === 'IHDR') {
      [width, height] = [body.readUInt32BE(0), body.readUInt32BE(4)];
      channels = { 2: 3, 6: 4 }[body.readUInt8(9)] ?? 0;
      if (body.readUInt8(8) !== 8 || channels === 0 || body.readUInt8(12) !== 0)
        throw new Error('only 8-bit PNG files without interlacing can be read');
    } else if (name === 'IDAT') data.push(body);
    else if (name === 'iTXt') {
      const end = body.indexOf(0);
      texts[body.toString('latin1', 0, end)] = body.subarray(end + 5).toString('utf8');
    } else if (name === 'IEND') hasEnded = true;
    offset += 12 + length;
  }
  if (!hasEnded) throw new Error('no end');
  const pixels = undoFilter(inflateSync(Buffer.concat(data)), { width, height, channels });
  return {
    width,
    height,
    texts,
    pixel: (x, y) => [...pixels.subarray((y * width + x) * channels, (y * width + x) * channels + 3)],
  };
}

function undoFilter(
  rows: Buffer,
  { width, height, channels }: { width: number; height: number; channels: number },
): Buffer {
  const rowBytes = width * channels;
  if (rows.length !== height * (rowBytes + 1)) throw new Error('the size of the data is wrong');
  const pixels = Buffer.alloc(height * rowBytes);
  for (let y = 0; y < height; y += 1) {
    const filter = rows[y * (rowBytes + 1)];
    for (let x = 0; x < rowBytes; x += 1) {
      const offset = y * rowBytes + x;
      const leftPixel = x >= channels ? (pixels[offset - channels] ?? 0) : 0;
      const pixelAbove = y > 0 ? (pixels[offset - rowBytes] ?? 0) : 0;
      const corner = x >= channels && y > 0 ? (pixels[offset - rowBytes - channels] ?? 0) : 0;
      const guess = [
        0,
        leftPixel,
        pixelAbove,
        (leftPixel + pixelAbove) >> 1,
        paeth(leftPixel, pixelAbove, corner),
      ][filter ?? 9];
      if (guess === undefined) throw new Error('an unknown filter');
      pixels[offset] = (rows[y * (rowBytes + 1) + 1 + x] ?? 0) + guess;
    }
  }
  return pixels;
}

function paeth(leftPixel: number, pixelAbove: number, corner: number): number {
  const estimate = leftPixel + pixelAbove - corner;
  const [toLeft, toAbove, toCorner] = [
    Math.abs(estimate - leftPixel),
    Math.abs(estimate - pixelAbove),
    Math.abs(estimate - corner),
  ];
  if (toLeft <= toAbove && toLeft <= toCorner) return leftPixel;
  return toAbove <= toCorner ? pixelAbove : corner;
}

/** Counts connected regions of `atLeast` pixels or more that satisfy the predicate. */
export function regionsOf(
  { width, height, pixel }: Picture,
  holds: (color: readonly number[]) => boolean,
  atLeast: number,
): number {
  const isPartOfRegion = new Uint8Array(width * height);
  for (let y = 0; y < height; y += 1)
    for (let x = 0; x < width; x += 1) isPartOfRegion[y * width + x] = holds(pixel(x, y)) ? 1 : 0;
  let regions = 0;
  for (let start = 0; start < isPartOfRegion.length; start += 1) {
    if (isPartOfRegion[start] !== 1) continue;
    let size = 0;
    const openPixels = [start];
    isPartOfRegion[start] = 0;
    for (let pixelIndex = openPixels.pop(); pixelIndex !== undefined; pixelIndex = openPixels.pop()) {
      size += 1;
      for (const next of [
        pixelIndex - width,
        pixelIndex + width,
        pixelIndex % width > 0 ? pixelIndex - 1 : -1,
        pixelIndex % width < width - 1 ? pixelIndex + 1 : -1,
      ]) {
        if (isPartOfRegion[next] !== 1) continue;
        isPartOfRegion[next] = 0;
        openPixels.push(next);
      }
    }
    if (size >= atLeast) regions += 1;
  }
  return regions;
}
