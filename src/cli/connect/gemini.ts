// Gemini CLI reads ~/.gemini/.env and takes the kind of its login from ~/.gemini/settings.json
// (https://geminicli.com/docs/reference/configuration,
// https://geminicli.com/docs/get-started/authentication).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const gemini: Tool = {
  id: 'gemini',
  title: 'Gemini CLI',
  format: 'gemini',
  preferredModel: /gemini/,
  edits: ({ url, token, model, home, env }) => {
    const folder = join(env['GEMINI_CLI_HOME'] || home, '.gemini');
    return [
      {
        kind: 'block',
        path: join(folder, '.env'),
        lines: [`GOOGLE_GEMINI_BASE_URL=${url}`, `GEMINI_API_KEY=${token}`, `GEMINI_MODEL=${model}`],
      },
      {
        kind: 'json',
        path: join(folder, 'settings.json'),
        set: [{ at: ['security', 'auth', 'selectedType'], value: 'gemini-api-key' }],
      },
    ];
  },
  start: () => ['gemini'],
};
