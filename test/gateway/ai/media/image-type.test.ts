import { describe, expect, test } from 'vitest';
import { detectImage } from '../../../../src/gateway/ai/media/image-type.ts';
import { scriptedPicture } from '../../../support/provider.ts';

const gif = Buffer.concat([Buffer.from('GIF89a'), Buffer.from([3, 0, 2, 0]), Buffer.alloc(30)]);
const jpeg = Buffer.concat([
  Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0, 0xff, 0xc2, 0, 11, 8, 0, 5, 0, 7]),
  Buffer.alloc(30),
]);
const webp = Buffer.concat([
  Buffer.from('RIFF\0\0\0\0WEBPVP8X'),
  Buffer.from([10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 19, 0, 0]),
  Buffer.alloc(10),
]);

describe('detectImage', () => {
  test.each([
    ['image/png', scriptedPicture, 1, 1],
    ['image/gif', gif, 3, 2],
    ['image/jpeg', jpeg, 7, 5],
    ['image/webp', webp, 10, 20],
  ])('reads the size of %s', (mediaType, file, width, height) => {
    expect(detectImage(file)).toEqual({ mediaType, width, height });
  });

  test.each([
    '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    '<html><body>hello there, this is a page</body></html>',
    '\x89PNG\r\n\x1a\n',
  ])('returns null for %j', (text) => {
    expect(detectImage(Buffer.from(text, 'latin1'))).toBeNull();
  });
});
