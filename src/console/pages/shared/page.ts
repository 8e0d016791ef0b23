// The interface between the frame of the console and its pages.
import type { Overview } from './views.ts';

export interface Page {
  /** Called with each new overview, and once when the page opens if an overview has been read. */
  update?(overview: Overview): void;
  /** Called when the agent is reachable again. */
  rejoin?(): void;
  close?(): void;
}

export interface Frame {
  go(hash: string): void;
  /** The newest overview; null before the first. */
  overview(): Overview | null;
  /** Reads a new overview now. */
  refresh(): Promise<void>;
}

/** `path` are the segments of the address after the page's name. */
export type OpenPage = (root: HTMLElement, path: readonly string[], frame: Frame) => Page;
