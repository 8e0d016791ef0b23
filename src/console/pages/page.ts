// What each room of the console is to the whole: it gets a place and what is known of the agent, and says how it ends.
import type { Overview } from '../views.ts';

export interface Page {
  /** Called with each new overview, and once after the beginning when there is one. */
  update?(overview: Overview): void;
  /** The agent is back after it was away. */
  rejoin?(): void;
  close?(): void;
}

export interface Rooms {
  go(hash: string): void;
  /** The newest, or null before the first. */
  overview(): Overview | null;
  /** Asks for a new overview now. */
  refresh(): Promise<void>;
}

/** `path` is what stands behind the room's name in the address. */
export type OpenPage = (root: HTMLElement, path: readonly string[], rooms: Rooms) => Page;
