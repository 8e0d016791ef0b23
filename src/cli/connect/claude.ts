// Claude Code reads the `env` of ~/.claude/settings.json (https://code.claude.com/docs/en/settings,
// https://docs.anthropic.com/en/docs/claude-code/llm-gateway). It appends /v1/messages to the address.
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const claude: Tool = {
  id: 'claude',
  title: 'Claude Code',
  format: 'messages',
  preferredModel: /claude.*sonnet/,
  edits: ({ url, token, model, home, env }) => {
    const variables = {
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: token,
      ANTHROPIC_MODEL: model,
      // Without these, background work goes to Claude's own model names.
      ANTHROPIC_DEFAULT_OPUS_MODEL: model,
      ANTHROPIC_DEFAULT_SONNET_MODEL: model,
      ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
    };
    const folder = env['CLAUDE_CONFIG_DIR'] || join(home, '.claude');
    return [
      {
        kind: 'json',
        path: join(folder, 'settings.json'),
        set: Object.entries(variables).map(([name, value]) => ({ at: ['env', name], value })),
      },
    ];
  },
  start: () => ['claude'],
};
