package highwire.verbs;

/** Looks again and again, and lets others run after so many looks. */
final class SpinningIdle implements IdleStrategy {
    /** 0 for never. */
    private final int turns;
    private int left;

    SpinningIdle(int turns) {
        this.turns = turns;
        this.left = turns;
    }

    @Override
    public void begin() {
        left = turns;
    }

    @Override
    public boolean goOn() {
        Thread.onSpinWait();
        if (--left == 0) {
            left = turns;
            return false;
        }
        return true;
    }

    @Override
    public void found() {
        left = turns;
    }
}
