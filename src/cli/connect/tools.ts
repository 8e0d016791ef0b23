// The coding agents that `townhall connect` knows.
import type { Tool } from './tool.ts';
import { aider } from './aider.ts';
import { claude } from './claude.ts';
import { cline } from './cline.ts';
import { codex } from './codex.ts';
import { continueDev } from './continue.ts';
import { gemini } from './gemini.ts';
import { opencode } from './opencode.ts';
import { qwen } from './qwen.ts';

export const tools: readonly Tool[] = [claude, codex, opencode, gemini, qwen, cline, continueDev, aider];
