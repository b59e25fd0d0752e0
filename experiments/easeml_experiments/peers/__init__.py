"""Ways of training many trials, side by side on the same rows with the same trainer, so that only the parallelism
differs. Each runs in processes of its own:

    python -m easeml_experiments.peers METHOD FOLDER

method_runner.py  a server and files with the same rows, and each method run over them
workload.py     the trials and the data, as files in a folder that every process reads
training.py     a trial's start, an epoch, its validation error: the product's own trainer
record.py       what a method reports
sequential.py   one trial after another          tasks.py       a trial for each process
ray_tune.py     the same under Ray Tune          collective.py  data parallel, and model averaging
ray_processes.py   Ray's own processes, from start to end
hopping.py      the product: model hopping inside PostgreSQL
launch.py       a method's processes, from start to end     usage.py  their memory and processor time
wire.py         what the kernel has counted on connections
"""
