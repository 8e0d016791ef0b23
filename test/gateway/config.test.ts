// Checks of settings beyond the form of their values. `test/cli/refused-starts.test.ts` has one refused value
// of each setting.
import { describe, expect, test } from 'vitest';
import { readGatewayConfig } from '../../src/gateway/config.ts';
import { SettingError } from '../../src/kernel/settings.ts';

const readError = (env: Record<string, string>): unknown => {
  try {
    readGatewayConfig({}, env);
    return undefined;
  } catch (error) {
    return error;
  }
};

describe('TOWNHALL_CITY_BASE_URL', () => {
  test.each(['https://ada:hunter2@city.example', 'https://:hunter2@city.example'])(
    'is refused with the credentials of %s, which the error does not repeat',
    (address) => {
      const error = readError({ TOWNHALL_CITY_BASE_URL: address });
      expect(error).toBeInstanceOf(SettingError);
      expect(String(error)).toContain('TOWNHALL_CITY_BASE_URL must not contain credentials');
      expect(String(error)).not.toContain('hunter2');
    },
  );

  test.each([
    'nonsense',
    'ftp://city.example',
    'https://city.example/#part',
    'https://city.example/#',
    'https://city.example/?tenant=1',
    'https://city.example?',
  ])('is refused for %s', (address) => {
    const error = readError({ TOWNHALL_CITY_BASE_URL: address });
    expect(error).toBeInstanceOf(SettingError);
    expect(String(error)).toContain('an http or https address without a query or fragment');
  });
});
