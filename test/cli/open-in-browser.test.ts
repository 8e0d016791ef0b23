// The program that opens an address in a browser, and the addresses that it never gets.
import { describe, expect, test } from 'vitest';
import { browserCommand } from '../../src/cli/command-line/open-in-browser.ts';

describe('the command that opens a browser', () => {
  test('starts no shell on Windows', () => {
    const address = 'https://models.example.com/device?a=1&calc#WDJB-MJHT';
    expect(browserCommand(address, 'win32')).toEqual({
      program: 'rundll32',
      args: ['url.dll,FileProtocolHandler', address],
    });
  });

  test.each(['file:///etc/passwd', '--version', 'javascript:alert(1)'])('refuses %s', (address) => {
    expect(browserCommand(address, 'linux')).toBeUndefined();
  });
});
