// Recognition of loopback addresses and Host names, and the networks by which callers are limited.
import { describe, expect, test } from 'vitest';
import { isLoopbackAddress, isLoopbackHost, networkOf } from '../../../src/kernel/http/address.ts';

describe('isLoopbackAddress', () => {
  test.each([
    '127.0.0.1',
    '127.255.0.3',
    '::1',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
    '::FFFF:7f00:1',
    '::1%lo',
  ])('accepts %s', (address) => {
    expect(isLoopbackAddress(address)).toBe(true);
  });
  test.each([
    '',
    '10.0.0.1',
    '0.0.0.0',
    '::',
    '::2',
    '::ffff:10.0.0.1',
    '127.1',
    'localhost',
    '1::1',
    'fe80::1%lo',
  ])('refuses %s', (address) => {
    expect(isLoopbackAddress(address)).toBe(false);
  });
});

describe('isLoopbackHost', () => {
  test.each(['localhost', 'LocalHost:43127', '127.0.0.1', '127.0.0.1:1', '[::1]', '[::1]:43127'])(
    'accepts %s',
    (host) => {
      expect(isLoopbackHost(host)).toBe(true);
    },
  );
  test.each([
    '',
    ':80',
    'localhost.',
    'a.localhost',
    'localhost.example',
    '127.0.0.1.example',
    '127.1',
    '2130706433',
    '[::2]',
    '::1',
    '[127.0.0.1]',
    'localhost:x',
    'localhost:80:80',
    'localhost@evil.example',
  ])('refuses %s', (host) => {
    expect(isLoopbackHost(host)).toBe(false);
  });
});

describe('networkOf', () => {
  test.each([
    ['10.1.2.3', '10.1.2.3'],
    ['::ffff:10.1.2.3', '10.1.2.3'],
    ['::ffff:203.0.113.200', '203.0.113.200'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:1:2::9', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1:2:3:4%eth0', 'fe80:0:0:0::/64'],
  ])('counts %s as %s', (address, network) => {
    expect(networkOf(address)).toBe(network);
  });
});
