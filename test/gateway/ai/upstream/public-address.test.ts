// Answers of providers contain URLs. The gateway must not follow them into its own network.
import { describe, expect, test } from 'vitest';
import {
  isPublicAddress,
  publicLookup,
  requirePublicUrl,
} from '../../../../src/gateway/ai/upstream/public-address.ts';

describe('a URL in a provider answer', () => {
  test.each([
    '127.0.0.1',
    '10.1.1.1',
    '172.16.0.1',
    '192.168.1.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '::',
    '::1',
    '::ffff:127.0.0.1',
    '64:ff9b::7f00:1',
    'fd00::1',
    'fe80::1',
    '2002:7f00:1::',
    'not an address',
  ])('is not followed to %s', (address) => {
    expect(isPublicAddress(address)).toBe(false);
  });

  test.each([
    'https://127.1/',
    'https://0x7f.1/',
    'https://2130706433/',
    'https://[::ffff:127.0.0.1]/',
    'http://example.com/',
    'https://user:word@example.com/',
    'file:///etc/passwd',
  ])('is not followed as %s', (url) => {
    expect(() => requirePublicUrl(url)).toThrow(expect.objectContaining({ code: 'upstream_failed' }));
  });

  test('is not followed to a host name with a private address', async () => {
    const failure = await new Promise((resolve) => publicLookup('localhost', {}, (error) => resolve(error)));
    expect(failure).toMatchObject({ code: 'upstream_failed' });
  });

  test('is followed to a public address', () => {
    expect(['8.8.8.8', '2606:4700::1111'].map(isPublicAddress)).toEqual([true, true]);
    expect(() => requirePublicUrl('https://example.com/film.mp4?signature=1')).not.toThrow();
  });
});
