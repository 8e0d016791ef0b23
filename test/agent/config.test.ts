// Agent settings: defaults, precedence, and the errors for wrong values.
import { isAbsolute, join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readAgentConfig } from '../../src/agent/config.ts';
import { SettingError } from '../../src/kernel/settings.ts';

const token = { AGENT_GATEWAY_TOKEN: 'th_usr_x' };

describe('readAgentConfig', () => {
  test('defaults to loopback and an absolute data folder', () => {
    const config = readAgentConfig({}, token);
    expect(config).toMatchObject({
      host: '127.0.0.1',
      port: 5314,
      variant: 'current',
      allowHost: [],
      allowOrigin: [],
      maxSteps: 64,
      executeWaitMs: 120_000,
    });
    expect(isAbsolute(config.dataDir)).toBe(true);
    expect(config.tokenFile).toBe(join(config.dataDir, 'agent.token'));
    expect(config.workspace).toBe(join(config.dataDir, 'workspace'));
  });

  test('prefers flags to the environment and a token file to a token', () => {
    const config = readAgentConfig(
      { port: '0', 'gateway-token-file': 'later.token', workspace: '.' },
      { ...token, AGENT_PORT: '80', AGENT_NAME: 'helper' },
    );
    expect(config).toMatchObject({
      port: 0,
      name: 'helper',
      gatewayToken: { file: resolve('later.token') },
      workspace: resolve('.'),
      isDefaultWorkspace: false,
    });
  });

  test('refuses to start without a gateway token or token file', () => {
    expect(() => readAgentConfig({}, {})).toThrow(/--gateway-token-file/);
  });

  test.each<[Record<string, string>, RegExp]>([
    [{ port: '70000' }, /AGENT_PORT/],
    [{ variant: 'newest' }, /AGENT_VARIANT/],
    [{ name: 'a b' }, /--name/],
    [{ model: '../x' }, /--model/],
    [{ 'gateway-url': 'file:///etc' }, /--gateway-url/],
    [{ 'gateway-url': 'http://user:pass@gateway' }, /--gateway-url/],
    [{ 'gateway-url': 'http://:pass@gateway' }, /--gateway-url/],
    [{ 'allow-origin': 'localhost:3000' }, /--allow-origin/],
    [{ 'allow-origin': 'http://localhost:3000/' }, /--allow-origin/],
    [{ 'gateway-token': 'x' }, /--gateway-token is not an option/],
  ])('refuses %j and names the setting', (flags, message) => {
    expect(() => readAgentConfig(flags, token)).toThrow(SettingError);
    expect(() => readAgentConfig(flags, token)).toThrow(message);
  });
});
