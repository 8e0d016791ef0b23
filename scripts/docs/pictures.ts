// The pictures of the guides: docs/pictures/NAME.webp in light colors and NAME-dark.webp in dark colors,
// taken by test/browser/guide-pictures.ts.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { escapeHtml } from './text.ts';

export interface PictureFile {
  bytes: Uint8Array;
  width: number;
  height: number;
}

/** The pictures by their paths in the portal, such as `pictures/login.webp`. */
export function readPictures(root: string): Map<string, PictureFile> {
  const folder = path.join(root, 'docs/pictures');
  const names = readdirSync(folder).filter((name) => name.endsWith('.webp'));
  return new Map(
    names.map((name) => {
      const bytes = readFileSync(path.join(folder, name));
      return [`pictures/${name}`, { bytes, ...readPictureSize(bytes) }];
    }),
  );
}

/**
 * Returns a function that writes both pictures of a file on a page; the style sheet shows the picture in
 * the page's colors. The function throws when the file or its dark counterpart is missing.
 */
export function pictureWriter(pictures: ReadonlyMap<string, PictureFile>, page: string) {
  const linkTo = (file: string) => escapeHtml(path.posix.relative(path.posix.dirname(page), file));
  return (target: string, description: string): string => {
    const light = target.replace(/^docs\//, '');
    const dark = light.replace(/\.webp$/, '-dark.webp');
    const picture = pictures.get(light);
    if (picture === undefined || !pictures.has(dark))
      throw new Error(`${page}: there is no picture ${target}, or none in dark colors`);
    const { width, height } = picture;
    const size = `width="${width}" height="${height}"`;
    const attributes = `alt="${escapeHtml(description)}" ${size} loading="lazy" decoding="async"`;
    const image = (scheme: string, file: string) =>
      `<img class="${scheme}" src="${linkTo(file)}" ${attributes}>`;
    return `<span class="picture">${image('light', light)}${image('dark', dark)}</span>`;
  };
}

/** The size of a lossy WebP picture, from its header. */
export function readPictureSize(bytes: Uint8Array): { width: number; height: number } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const format = new TextDecoder().decode(bytes.subarray(8, 16));
  if (format === 'WEBPVP8 ')
    return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
  if (format === 'WEBPVP8X') {
    const size = (offset: number) => 1 + view.getUint16(offset, true) + (view.getUint8(offset + 2) << 16);
    return { width: size(24), height: size(27) };
  }
  throw new Error('a picture is not a lossy WebP file');
}
