// Formats numbers as vmselect/units.py does, and shortens names.

const SECONDS_PER_HOUR = 3600;

/** x with a fixed number of decimals. Rounds half to even as Python does; JavaScript rounds half up. */
function fixed(x, decimals) {
  const exact = x.toFixed(decimals + 60);
  const below = exact.slice(0, -60).replace(/\.$/, "");
  const tie = /^50*$/.test(exact.slice(-60));
  return tie && Number(below.at(-1)) % 2 === 0 ? below : x.toFixed(decimals);
}

/** x with p significant digits and no trailing zeros, as Python's "%.3g" writes numbers of ordinary size. */
function significant(x, p) {
  if (x === 0) return "0";
  if (Math.abs(x) < 1e-4 && Math.abs(Number(x.toPrecision(p))) < 1e-4) {
    return x.toExponential(p - 1).replace(/\.?0*e/, "e").replace(/e-(\d)$/, "e-0$1");
  }
  const decimals = Math.max(0, p - 1 - Math.floor(Math.log10(Math.abs(Number(x.toPrecision(p))))));
  const text = fixed(x, Math.min(20, decimals));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function round(x) {
  return Number(fixed(x, 0));
}

function grouped(text) {
  const [whole, rest] = text.split(".");
  const commas = whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return rest === undefined ? commas : `${commas}.${rest}`;
}

function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + formatSeconds(-seconds);
  if (seconds < 0.9995) return `${significant(seconds * 1e3, 3)} ms`;
  if (seconds < 59.95) return `${significant(seconds, 3)} s`;
  if (seconds < 3599.5) return inTwoUnits(round(seconds), "min", "s");
  if (seconds < 36 * SECONDS_PER_HOUR) return inTwoUnits(round(seconds / 60), "h", "min");
  return `${grouped(fixed(seconds / SECONDS_PER_HOUR, 1))} h`;
}

function inTwoUnits(count, large, small) {
  const rest = count % 60;
  const whole = `${(count - rest) / 60} ${large}`;
  return rest ? `${whole} ${rest} ${small}` : whole;
}

const SMALLEST_DIGITS = 7; // smaller amounts are written with an exponent

function formatUsd(usd) {
  if (!Number.isFinite(usd)) return "unknown";
  if (usd < 0) return "-" + formatUsd(-usd);
  if (usd > 0 && usd < 1e-4) {
    const brief = usd.toExponential(1);
    const digits = 1 - Number(brief.split("e")[1]);
    return "$" + (digits <= SMALLEST_DIGITS ? usd.toFixed(digits) : brief.replace(/e([+-])(\d)$/, "e$10$2"));
  }
  if (usd > 0 && usd < 0.0995) return `$${significant(usd, 2)}`;
  return `$${grouped(fixed(usd, 2))}`;
}

function formatKwh(kwh) {
  return formatThousandths(kwh, "Wh", "kWh");
}

function formatKg(kg) {
  return formatThousandths(kg, "g", "kg");
}

function formatThousandths(value, small, large) {
  if (!Number.isFinite(value)) return "unknown";
  if (value < 0) return "-" + formatThousandths(-value, small, large);
  if (value < 0.9995) return `${significant(value * 1000, 3)} ${small}`;
  return value < 999.5 ? `${significant(value, 3)} ${large}` : `${grouped(fixed(value, 0))} ${large}`;
}

/** "low – high", or an empty text if both are formatted alike. */
function formatRange(low, high, format) {
  const [from, to] = [format(low), format(high)];
  return from === to ? "" : `${from} – ${to}`;
}

function formatCount(count) {
  return grouped(String(count));
}

/** A number of epochs, which may be a mean and thus a fraction. */
function formatEpochs(epochs) {
  return grouped(fixed(epochs, 1)).replace(/\.0$/, "");
}

function formatShare(share) {
  return `${significant(share * 100, 3)} %`;
}

function formatChance(chance) {
  if (chance < 0.01) return "<1%";
  return chance > 0.99 && chance < 1 ? ">99%" : `${fixed(100 * chance, 0)}%`;
}

/** `text` in at most `most` characters. The middle is dropped, because names often differ at their end. */
function shorten(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const tail = Math.floor(most / 2) - 1;
  return `${letters.slice(0, most - tail - 1).join("")}…${letters.slice(-tail).join("")}`;
}
