"""A study that takes seconds and has every kind of cell."""

PLAN = """
name = "tiny"
seeds = [0]
pool = 2
shifts = ["rotation", "brightness"]
severities = [2, 7]
test_size = 150
multi_pass_size = 100
reference_size = 300
calibration_size = 200
bootstrap = 10

[[pairs]]
dataset = "digits"
net = "small-cnn"
train = { epochs = 2 }

[methods.qipf]
operator = "published"
factor = 80

[methods.entropy]

[methods.mc-dropout]
rate = 0.1
passes = 3

[methods.svi-ll]
epochs = 1
passes = 3

[methods.ensemble]
members = 2
"""
